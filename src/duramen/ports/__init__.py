"""What the core asks of the world: a store, a clock, ids, outlets, a model, an embedder."""

from .embedding import (
    Embedder as Embedder,
)
from .embedding import (
    EmbedderIdentity as EmbedderIdentity,
)
from .embedding import (
    Vectors as Vectors,
)
from .memories import (
    Change as Change,
)
from .memories import (
    Generation as Generation,
)
from .memories import (
    Kept as Kept,
)
from .memories import (
    MemoryQuery as MemoryQuery,
)
from .memories import (
    MemoryRow as MemoryRow,
)
from .memories import (
    Segment as Segment,
)
from .memories import (
    Sought as Sought,
)
from .memories import (
    Trace as Trace,
)
from .records import (
    GENESIS as GENESIS,
)
from .records import (
    TALK as TALK,
)
from .records import (
    Append as Append,
)
from .records import (
    Appended as Appended,
)
from .records import (
    Beside as Beside,
)
from .records import (
    Blob as Blob,
)
from .records import (
    Erase as Erase,
)
from .records import (
    Erasure as Erasure,
)
from .records import (
    FeedItem as FeedItem,
)
from .records import (
    Head as Head,
)
from .records import (
    Landmark as Landmark,
)
from .records import (
    LandmarkQuery as LandmarkQuery,
)
from .records import (
    LeaseRow as LeaseRow,
)
from .records import (
    Limits as Limits,
)
from .records import (
    Link as Link,
)
from .records import (
    Part as Part,
)
from .records import (
    Plain as Plain,
)
from .records import (
    Record as Record,
)
from .records import (
    Rewrap as Rewrap,
)
from .records import (
    RunChange as RunChange,
)
from .records import (
    RunQuery as RunQuery,
)
from .records import (
    RunRow as RunRow,
)
from .records import (
    SessionRow as SessionRow,
)
from .records import (
    SubjectRow as SubjectRow,
)
from .records import (
    Touched as Touched,
)
from .seeking import (
    Candidate as Candidate,
)
from .seeking import (
    Drawn as Drawn,
)
from .seeking import (
    Seek as Seek,
)
from .seeking import (
    Seeker as Seeker,
)
from .seeking import (
    Sighting as Sighting,
)
from .seeking import (
    Survey as Survey,
)
from .store import (
    Lane as Lane,
)
from .store import (
    Store as Store,
)
from .store import (
    StrandMoved as StrandMoved,
)
from .store import (
    SubjectGone as SubjectGone,
)
from .store import (
    Transaction as Transaction,
)
from .world import (
    Clock as Clock,
)
from .world import (
    Ids as Ids,
)
from .world import (
    Model as Model,
)
from .world import (
    Outlet as Outlet,
)
from .world import (
    TokenCounter as TokenCounter,
)
