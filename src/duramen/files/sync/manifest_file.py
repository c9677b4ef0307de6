"""Stores the manifest of a folder: a complete file, and a log of changes.

`manifest` is replaced atomically. `manifest-changes` gets one line for each sync with few changes. Each line names the
manifest to which it belongs. An incomplete last line, which a killed process left, is ignored.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from ...errors import InvalidInput
from ..folder.names import folder_name
from .state_folder import StateFolder
from .sync_manifest import FORMAT_VERSION, ManifestState, SyncManifest

_NAME, _CHANGES = "manifest", "manifest-changes"
_LITTLE = 500
"""Up to this many changes are appended as a line. For more, the whole manifest is written."""
_MOST = 256 * 1024
"""Bytes of appended changes after which the whole manifest is written."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ManifestState).decode


class ManifestFile:
    """Loads and saves the manifest of a folder. The manifest is cached until another process writes it."""

    def __init__(self, root: str, workspace: str) -> None:
        self._root = root
        self._workspace = workspace
        self._manifest: SyncManifest | None = None
        self._base = ""
        self._seen: tuple[int, ...] = ()

    def load(self, folder: StateFolder) -> SyncManifest:
        """The manifest. Empty if there is none or it cannot be read. The caller owns it until `save`. Raises
        `InvalidInput` if the folder belongs to another workspace."""
        manifest, self._manifest = self._manifest, None
        if manifest is not None and _signature(folder) == self._seen:
            return manifest
        manifest, self._base = SyncManifest(self._workspace), ""
        try:
            state = _decode(folder.read(_NAME))
        except (OSError, msgspec.DecodeError, ValueError):
            _expect_own(self._root, self._workspace)
            return manifest
        if state.workspace != self._workspace:
            raise _another(self._root, repr(state.workspace))
        if state.form == FORMAT_VERSION:
            manifest.apply(state)
            for line in _lines(folder, state.base):
                manifest.apply(line)
            manifest.mark_saved()
            self._base = state.base
        return manifest

    def save(self, folder: StateFolder, manifest: SyncManifest) -> None:
        """Store the changes durably."""
        if not self._base or manifest.lost or manifest.size > _LITTLE or _is_long(folder):
            base = secrets.token_hex(8)
            folder.replace(_NAME, _encode(manifest.whole(base)))
            folder.remove(_CHANGES)  # they belong to the old manifest; if they stay, `load` ignores them
            self._base = base
        elif manifest.size:
            folder.append(_CHANGES, _encode(manifest.changes(self._base)) + b"\n")
        manifest.mark_saved()
        self._manifest, self._seen = manifest, _signature(folder)


def _lines(folder: StateFolder, base: str) -> Iterator[ManifestState]:
    with suppress(OSError, msgspec.DecodeError, ValueError):
        for line in folder.read(_CHANGES).split(b"\n")[:-1]:
            state = _decode(line)
            if state.base != base or state.form != FORMAT_VERSION:
                return
            yield state


def _is_long(folder: StateFolder) -> bool:
    found = folder.stat(_CHANGES)
    return found is not None and found.st_size > _MOST


def _signature(folder: StateFolder) -> tuple[int, ...]:
    found = [one for one in map(folder.stat, (_NAME, _CHANGES)) if one is not None]
    return tuple(part for one in found for part in (one.st_size, one.st_mtime_ns, one.st_ino, one.st_ctime_ns))


def _expect_own(root: str, workspace: str) -> None:
    """Raise `InvalidInput` if there is a folder of another workspace. Used when there is no manifest."""
    try:
        others = sorted(set(os.listdir(os.path.join(root, "workspace"))) - {folder_name(workspace)})
    except OSError:
        return
    if others and not others[0].startswith("."):
        raise _another(root, repr(others[0]))


def _another(root: str, workspace: str) -> InvalidInput:
    return InvalidInput(
        f"{root} contains the files of workspace {workspace}",
        hint="use a separate folder for each workspace",
    )
