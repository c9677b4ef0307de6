"""LangGraph's checkpointer on a journal: the methods that LangGraph calls, each in its blocking and its async form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ...api._async.duramen import AsyncDuramen
from ...api._sync.duramen import Duramen
from ...checkpoints.checkpoints import Checkpoints
from ...errors import InvalidInput
from ...runtime import drive, drive_iterator
from .channels import SavedLists
from .handle import HandleAdapter
from .serializer import ValueSerializer
from .thread_removal import ThreadRemoval
from .threads import Threads


class DuramenSaver(BaseCheckpointSaver[int]):
    """A checkpointer that stores what is new: messages are written once, whatever the length of the conversation.

    A thread is the session of the same id; both kinds of handle serve both kinds of graph call. ValueSerializer are serialized
    by LangGraph's own serializer (`serde`), without pickle.

    Two runs that go on from the same checkpoint of a thread would lose the messages of one of them: the second one to
    save gets a `CheckpointConflict`. With `on_conflict="allow"` it wins silently, as with LangGraph's own savers. Runs
    that ask for an earlier checkpoint by its id branch off as ever.

    A message that a node changes in place is stored with the next checkpoint.
    """

    def __init__(
        self,
        dm: Duramen | AsyncDuramen,
        *,
        serde: SerializerProtocol | None = None,
        on_conflict: Literal["refuse", "allow"] = "refuse",
    ) -> None:
        super().__init__(serde=serde)
        if on_conflict not in ("refuse", "allow"):
            raise InvalidInput(f"on_conflict cannot be {on_conflict!r}", hint='use "refuse" or "allow"')
        self._handle = HandleAdapter(dm)
        self._checkpoints = Checkpoints(self._handle.journal)
        self._saved_lists = SavedLists()
        self._refuse = on_conflict == "refuse"
        self._serializer = ValueSerializer(self.serde)

    @property
    def _threads(self) -> Threads:
        if self._serializer.serde is not self.serde:  # LangGraph exchanges the serializer of a copy of its saver
            self._serializer = ValueSerializer(self.serde)
        return Threads(
            self._handle.journal, self._checkpoints, self._saved_lists, self._serializer, refuse=self._refuse
        )

    @property
    def _removal(self) -> ThreadRemoval:
        return ThreadRemoval(self._threads, self._checkpoints, self._saved_lists, self._serializer)

    # -- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint; durable on return. Raises `CheckpointConflict`."""
        return drive(self._threads.put(config, checkpoint, metadata))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`."""
        return await self._handle.run(self._threads.put(config, checkpoint, metadata))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Attach a task's writes to a checkpoint; durable on return."""
        drive(self._threads.put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As `put_writes`."""
        await self._handle.run(self._threads.put_writes(config, writes, task_id, task_path))

    # -- decoder

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the configuration names, or the newest. If that one is damaged, the one before it, with a
        warning in the log."""
        return drive(self._threads.get(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await self._handle.run(self._threads.get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints of a namespace, a thread or all threads (None), newest first; `filter` looks at metadata."""
        return drive_iterator(self._threads.tuples(config, filter, before, limit))

    def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        return self._handle.iterate(self._threads.tuples(config, filter, before, limit))

    # -- removing and copying

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread's checkpoints and writes, payloads included."""
        drive(self._removal.delete(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._handle.run(self._removal.delete(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs saved in any thread, with their writes. Looks at all checkpoints."""
        drive(self._removal.delete_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `delete_for_runs`."""
        await self._handle.run(self._removal.delete_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread to another one."""
        drive(self._removal.copy(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `copy_thread`."""
        await self._handle.run(self._removal.copy(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Of these threads keep the newest checkpoint of each namespace ("keep_latest") or nothing ("delete"). Earlier
        ones stay where the newest needs their writes (DeltaChannel)."""
        drive(self._removal.prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await self._handle.run(self._removal.prune(thread_ids, strategy))
