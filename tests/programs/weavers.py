"""Weaves states as a process would, onto chunk_logs that are kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from duramen.checkpoints.delta import weave
from duramen.checkpoints.manifest import Form, Items, Kept, Leaf, Span, bodies_of
from duramen.checkpoints.removal import in_order, mover

encode = msgspec.msgpack.encode
STRAND = 77
SALT = b"salt"


def by_bytes(values: Sequence[Any], known: list[Any]) -> list[Any]:
    """Stand-ins that tell 1 from True and 1.0."""
    return [encode(value) for value in values]


def items(values: Sequence[Any]) -> Items:
    return Items(values, encode, by_bytes)


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """What reading such fields must give."""
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Leaf):
        return value.body
    return [value.encode(one) for one in value.values] if isinstance(value, Items) else plain(value)


class Writer:
    """Weaves states as a process would, onto chunk_logs that it keeps in memory."""

    def __init__(self, salt: bytes = SALT) -> None:
        self.salt = salt
        self.chunk_logs: dict[int, list[bytes]] = {STRAND: []}
        self.kept = Kept(STRAND, 0)
        self.forms: list[tuple[bytes, bytes, dict[str, Any]]] = []
        self.written: list[int] = []

    def save(self, name: str | None, fields: dict[str, Any]) -> int:
        """Store a state, look whether it and its digest can be read back, and say how many bodies were written."""
        woven = weave(name, fields, self.kept, self.salt)
        chunk_log = self.chunk_logs[woven.chunk_log]
        assert woven.start == len(chunk_log)
        chunk_log += woven.bodies
        self.kept.tip = len(chunk_log)
        self.kept.learn(name, woven.fields, woven.fresh.items())
        assert Form(woven.form).tip == len(chunk_log)
        self.forms.append((woven.form, woven.digest, plain(fields)))
        self.check(woven.form, woven.digest, plain(fields))
        self.written.append(sum(map(len, woven.bodies)) + len(woven.form))
        return len(woven.bodies)

    def check(self, form: bytes, digest: bytes, wanted: dict[str, Any]) -> None:
        state, found, _ = self.read(form).assemble(self.bodies, self.salt)
        assert state == wanted
        assert list(state) == list(wanted)
        assert found == digest

    def read(self, packed: bytes) -> Form:
        """A form with all its pages turned."""
        form = Form(packed)
        while pages := form.pages():
            form.turn([self.chunk_logs[page.chunk_log][page.first] for page in pages])
        return form

    def bodies(self, span: Span) -> list[bytes]:
        found = self.chunk_logs[span.chunk_log][span.first : span.last]
        assert len(found) == span.last - span.first
        return found

    def reopen(self, name: str) -> None:
        """Go on as another process would that read the last state."""
        form = self.read(self.forms[-1][0])
        _, _, fields = form.assemble(self.bodies, self.salt)
        self.kept = Kept(form.chunk_log, form.tip)
        self.kept.learn(name, fields, bodies_of(fields))

    def move(self) -> None:
        """Put all states together anew on another chunk_log, as dropping does."""
        forms = [self.read(form) for form, _, _ in self.forms]
        needed = in_order(span for form in reversed(forms) for span in form.spans())
        fresh = [body for span in needed for body in self.bodies(span)]
        assert len({(span.chunk_log, at) for span in needed for at in range(*span[1:])}) == len(fresh), "each once"
        name = max(self.chunk_logs) + 1
        self.chunk_logs = {name: fresh}
        moved = [form.moved(mover(needed, name), name, len(fresh)) for form in forms]
        self.forms = [(form, digest, wanted) for form, (_, digest, wanted) in zip(moved, self.forms, strict=True)]
        for form, digest, state in self.forms:
            self.check(form, digest, state)
        self.kept = Kept(name, len(fresh))
