"""LangGraph's checkpointer on a journal. Each method that LangGraph calls has a sync and an async form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
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
from ...errors import InvalidInput, shown
from ...runtime import drive, drive_iterator
from .channels import SavedLists
from .handle import HandleAdapter
from .serializer import ValueSerializer, strict_serializer
from .thread_removal import ThreadRemoval
from .threads import Threads


class DuramenSaver(BaseCheckpointSaver[int]):
    """A checkpointer that stores only what changed: each message is written once, however long the conversation is.

    A thread is the session with the same id. Sync and async graph calls work with both kinds of handle. LangGraph's own
    serializer serializes the values, without pickle.

    Only plain data, messages and LangGraph's own types are loaded by default, because a manipulated row can name any
    function. List the other types of your state in `types`. Or pass a serializer of your own as `serde`.

    If two runs continue from the same checkpoint of a thread, the messages of one would be lost. The second one to save
    gets a `CheckpointConflict`. With `on_conflict="allow"` it overwrites the first silently, as with LangGraph's own
    savers. A run that requests an earlier checkpoint by its id starts a branch and never conflicts.

    A message that a node changes in place is stored with the next checkpoint.
    """

    def __init__(
        self,
        dm: Duramen | AsyncDuramen,
        *,
        serde: SerializerProtocol | None = None,
        types: Iterable[type | tuple[str, str]] = (),
        on_conflict: Literal["refuse", "allow"] = "refuse",
    ) -> None:
        super().__init__(serde=strict_serializer(types) if serde is None else serde)
        if on_conflict not in ("refuse", "allow"):
            raise InvalidInput(f"on_conflict cannot be {shown(on_conflict)}", hint='use "refuse" or "allow"')
        self._handle = HandleAdapter(dm)
        self._checkpoints = Checkpoints(self._handle.journal)
        self._saved_lists = SavedLists()
        self._refuse = on_conflict == "refuse"
        self._serializer = ValueSerializer(self.serde)

    @property
    def _threads(self) -> Threads:
        if self._serializer.serde is not self.serde:  # LangGraph copies a saver and replaces the serializer of the copy
            self._serializer = ValueSerializer(self.serde)
        return Threads(
            self._handle.journal, self._checkpoints, self._saved_lists, self._serializer, refuse=self._refuse
        )

    @property
    def _removal(self) -> ThreadRemoval:
        return ThreadRemoval(self._threads, self._checkpoints, self._saved_lists, self._serializer)

    def get_next_version(self, current: int | str | None, channel: None) -> Any:
        """The version that follows `current`: a whole number. A thread that was copied from another saver continues
        with its text versions, because LangGraph compares the versions of a thread with each other."""
        if isinstance(current, str):
            number, _, rest = current.partition(".")
            return f"{int(number) + 1:0{len(number)}}.{rest}" if rest else f"{int(number) + 1:0{len(number)}}"
        return 1 if current is None else current + 1

    # -- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint and return its configuration. It is durable when this returns. Raises
        `CheckpointConflict` if another run saved one first."""
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
        """Attach a task's writes to a checkpoint. They are durable when this returns."""
        drive(self._threads.put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As `put_writes`."""
        await self._handle.run(self._threads.put_writes(config, writes, task_id, task_path))

    # -- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint with the configured id, or the newest one. If the newest is damaged, the one before it is
        returned and a warning is logged. None if there is none."""
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
        """The checkpoints of a namespace, a thread or all threads (None), newest first. `filter` applies to
        metadata."""
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
        """Remove a thread's checkpoints and writes, including their payloads."""
        drive(self._removal.delete(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._handle.run(self._removal.delete(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that these runs saved in any thread, with their writes. Reads all checkpoints."""
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
        """Keep only the newest checkpoint of each namespace of these threads ("keep_latest"), or none ("delete").
        Earlier ones also stay if the newest needs their writes (DeltaChannel)."""
        drive(self._removal.prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `prune`."""
        await self._handle.run(self._removal.prune(thread_ids, strategy))
