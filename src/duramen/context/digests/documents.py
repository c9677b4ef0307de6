"""Recognises outputs in known text formats: diffs, commit logs, file listings, web pages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..compaction.trim import plain
from .long_text import LongText, counted, shown
from .sketch import Piece, Slot

_MOST_NAMES = 40
_MODE = re.compile(r"^[-dlbcps][rwxsStT-]{9}[.+@]?\s")
_COMMIT = re.compile(r"^commit [0-9a-f]{7,64}\b")
_TAG = re.compile(r"<[^<>]{0,2000}>")


class TextFormat(NamedTuple):
    """The format of a text and its pieces. With `prose`, the last line and error lines are added."""

    name: str
    pieces: list[Piece]
    prose: bool = False


def document(output: LongText) -> TextFormat | None:
    """The format of a text. None if it is not one of those in this module."""
    for recognise in (_diff, _commits, _listing, _page):
        if (format := recognise(output)) is not None:
            return format
    return None


def _shape(text: str, share: float = 0.5, label: str = "") -> Piece:
    return Piece(Slot.SHAPE, text, share, label)


def _diff(output: LongText) -> TextFormat | None:
    head = [line for line in output.head[:60] if line]
    if not any(line.startswith("diff --git ") for line in head):
        marks = [line[:4] for line in head if line[:4] in ("--- ", "+++ ", "@@ -")]
        if marks[:3] != ["--- ", "+++ ", "@@ -"]:
            return None
    # Lines are counted by their first character, so a removed line "-- comment" is counted as a header.
    files = dict.fromkeys(_changed_files(output))
    raw = b"\n" + output.raw
    added = raw.count(b"\n+") - raw.count(b"\n+++ ")
    removed = raw.count(b"\n-") - raw.count(b"\n--- ")
    names = ", ".join([*list(files)[:_MOST_NAMES], *(["…"] if len(files) > _MOST_NAMES else [])])
    counts = Piece(Slot.COUNTS, f"{counted(len(files), 'file')} changed, +{added:,} -{removed:,} lines", 0.4)
    return TextFormat("diff", [counts, _shape(names)])


def _changed_files(output: LongText) -> Iterable[str]:
    for line in output.find(b"+++ ", front=2000, back=0):
        if line.text.startswith("+++ "):
            name = shown(line.text[4:].partition("\t")[0])
            yield name.removeprefix("b/") if name != "/dev/null" else "(removed)"


def _commits(output: LongText) -> TextFormat | None:
    head = [line for line in output.head if line.strip()]
    if not head or not _COMMIT.match(head[0]) or not any(line.startswith("Author: ") for line in head[:6]):
        return None
    count = (b"\n" + output.raw).count(b"\ncommit ")
    newest = _subject(head)
    tail = output.text[-16384:].split("\n")
    starts = [at for at, line in enumerate(tail) if _COMMIT.match(line)]
    oldest = _subject(tail[starts[-1] :]) if starts else ""
    pieces = [
        Piece(Slot.COUNTS, counted(count, "commit"), 0.2),
        Piece(Slot.FIRST, newest, 0.4, "first: "),
        Piece(Slot.LAST, oldest, 0.4, "last: "),
    ]
    return TextFormat("commit log", pieces if oldest and oldest != newest else pieces[:2])


def _subject(lines: list[str]) -> str:
    """Hash, subject and date of the commit on the first line."""
    subject = next((plain(line) for line in lines[1:] if line.startswith("    ") and line.strip()), "")
    date = next((plain(line[5:]) for line in lines[1:8] if line.startswith("Date:")), "")
    return plain(f"{lines[0].split()[1][:9]} {subject}{f' ({date})' if date else ''}")


def _listing(output: LongText) -> TextFormat | None:
    head = [line for line in output.head[:40] if line.strip()]
    if sum(bool(_MODE.match(line)) for line in head) * 2 < len(head) or len(head) < 2:
        return None
    raw = b"\n" + output.raw
    files, links = raw.count(b"\n-"), raw.count(b"\nl")
    folders = raw.count(b"\ndr") + raw.count(b"\nd-")
    counts = f"{counted(files, 'file')}, {folders:,} directories"
    counts += f", {counted(links, 'link')}" if links else ""
    sections = [shown(line)[:-1] for line in output.head if line.rstrip().endswith(":")]
    opened = [_shape(", ".join(sections[:_MOST_NAMES]), 0.25, "sections: ")] if sections else []
    return TextFormat("file listing", [Piece(Slot.COUNTS, counts, 0.4), *opened, *_names(head)])


def _names(lines: list[str]) -> list[Piece]:
    entries = [plain(line).split(" ", 8)[-1] for line in lines if line.startswith("-")]
    return [_shape(", ".join(entries[:20]), 0.3, "first files: ")] if entries else []


def _page(output: LongText) -> TextFormat | None:
    beginning = output.text[:2048].lower()
    if "<!doctype html" not in beginning and "<html" not in beginning:
        return None
    titles = [_inner(output, line.start, b"title") for line in output.find(b"<title", front=1)]
    levels = sorted((line.start, tag) for tag in (b"h1", b"h2", b"h3") for line in output.find(b"<" + tag, front=20))
    headings = dict.fromkeys(heading for start, tag in levels if (heading := _inner(output, start, tag)))
    pieces = [_shape(title, 0.4, "title: ") for title in titles if title]
    pieces += [_shape("; ".join(headings), 0.5, "headings: ")] if headings else []
    links = output.lower.count(b"<a ")
    pieces.append(Piece(Slot.COUNTS, f"{counted(links, 'link')}, {counted(output.lower.count(b'<img'), 'image')}", 0.2))
    return TextFormat("HTML", pieces)


def _inner(output: LongText, start: int, tag: bytes) -> str:
    """The text of the first such element after `start`, without tags."""
    opened = output.lower.find(b"<" + tag, start)
    end = output.lower.find(b"</" + tag, opened, opened + 2000)
    text = output.raw[opened : end if end > 0 else opened + 200].decode("utf-8", "ignore")
    return plain(_TAG.sub(" ", text))
