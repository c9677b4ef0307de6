"""The owners of payloads: the salts and data keys of subjects, read once and cached."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from ..ports import Rewrap, Store, SubjectRow
from .sealing import Keyring

WORKSPACE = ""
"""The name of the subject that owns data about no person in a sealed workspace."""


class Owner(NamedTuple):
    """A subject with its unwrapped data key."""

    ref: bytes | None
    name: str | None
    salt: bytes
    data_key: bytes | None

    def address(self, body: bytes) -> bytes:
        """The address of a blob of this owner."""
        return blake2b(body, digest_size=32, key=self.salt).digest()


NOBODY = Owner(None, None, b"", None)


class Owners:
    """The subjects of a workspace, with their unwrapped keys, in a cache."""

    def __init__(self, store: Store, workspace: str, keyring: Keyring) -> None:
        self._store = store
        self._workspace = workspace
        self.keyring = keyring
        self._by_name: dict[str, Owner] = {}
        self._by_ref: dict[bytes | None, Owner] = {None: NOBODY}

    async def of(self, subject: str | None) -> Owner:
        """The owner of new data about `subject`. Creates the subject at its first use."""
        if subject is None and not self.keyring:
            return NOBODY
        name = subject or WORKSPACE
        known = self._by_name.get(name)
        if known is not None:
            return known
        row = await self._store.subject(self._workspace, name)
        if row is None:
            fresh = self.keyring.new_subject(self._workspace, name)
            row = await self._store.add_subject(self._workspace, fresh)
        if self.keyring and row.wrapped is None:
            row = await self._give_key(row)
        return self._remember(row)

    async def _give_key(self, row: SubjectRow) -> SubjectRow:
        """Give a data key to a subject that was created before the store had a master key."""
        fresh = self.keyring.new_subject(self._workspace, row.name)
        data_key = self.keyring.unwrap(self._workspace, fresh) or b""
        keyed = self.keyring.wrap(self._workspace, row, data_key)
        if await self._store.rewrap(self._workspace, [Rewrap(row.ref, None, keyed)]):
            return keyed
        return await self._store.subject(self._workspace, row.name) or keyed

    async def load(self, refs: Iterable[bytes | None]) -> dict[bytes | None, Owner]:
        """The owners with these references. Erased subjects are left out."""
        found: dict[bytes | None, Owner] = {}
        for ref in refs:
            owner = self._by_ref.get(ref)
            if owner is None and ref is not None:
                row = await self._store.subject_by_ref(self._workspace, ref)
                owner = self._remember(row) if row is not None else None
            if owner is not None:
                found[ref] = owner
        return found

    def _remember(self, row: SubjectRow) -> Owner:
        data_key = self.keyring.unwrap(self._workspace, row)
        owner = Owner(row.ref, row.name or None, row.salt, data_key)
        if len(self._by_ref) > 50_000:
            self.forget_all()
        self._by_name[row.name] = self._by_ref[row.ref] = owner
        return owner

    def forget_all(self) -> None:
        """Clear the cache. Subjects are read again when they are needed."""
        self._by_name.clear()
        self._by_ref = {None: NOBODY}
