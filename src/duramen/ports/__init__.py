"""The ports: what the core needs from outside. They are a store, a clock, ids, outlets, a model and an embedder.

Start with `store`, the largest port, and `records`, the rows that pass through it.
"""

from .embedding import Embedder as Embedder
from .embedding import EmbedderIdentity as EmbedderIdentity
from .embedding import Vectors as Vectors
from .memories import Change as Change
from .memories import Generation as Generation
from .memories import IndexEntry as IndexEntry
from .memories import MemoryQuery as MemoryQuery
from .memories import MemoryRow as MemoryRow
from .memories import SearchFields as SearchFields
from .memories import Segment as Segment
from .memories import StoredIndexEntry as StoredIndexEntry
from .records import GENESIS as GENESIS
from .records import TALK as TALK
from .records import Batch as Batch
from .records import BatchChange as BatchChange
from .records import Blob as Blob
from .records import Bookmark as Bookmark
from .records import BookmarkChanges as BookmarkChanges
from .records import BookmarkQuery as BookmarkQuery
from .records import Chunk as Chunk
from .records import Erase as Erase
from .records import Erasure as Erasure
from .records import FeedItem as FeedItem
from .records import Head as Head
from .records import LeaseRow as LeaseRow
from .records import Limits as Limits
from .records import MemoryChanges as MemoryChanges
from .records import Record as Record
from .records import ReleaseLease as ReleaseLease
from .records import Rewrap as Rewrap
from .records import RunChange as RunChange
from .records import RunQuery as RunQuery
from .records import RunRow as RunRow
from .records import SessionRow as SessionRow
from .records import Stored as Stored
from .records import SubjectRow as SubjectRow
from .records import Touched as Touched
from .retrieval import Candidate as Candidate
from .retrieval import CorpusSample as CorpusSample
from .retrieval import RetrievalQuery as RetrievalQuery
from .retrieval import RetrievalResult as RetrievalResult
from .retrieval import Retriever as Retriever
from .retrieval import SampledMemory as SampledMemory
from .store import ChunkLogMoved as ChunkLogMoved
from .store import Store as Store
from .store import SubjectGone as SubjectGone
from .store import Transaction as Transaction
from .world import Clock as Clock
from .world import Ids as Ids
from .world import Model as Model
from .world import Outlet as Outlet
from .world import TokenCounter as TokenCounter
