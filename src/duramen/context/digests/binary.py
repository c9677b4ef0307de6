"""Recognises text in bytes, and the file type of other bytes by their first bytes."""

from __future__ import annotations

import hashlib

from .sketch import Piece, Sketch, Slot

_KINDS = (
    (0, b"\x89PNG\r\n\x1a\n", "PNG image"),
    (0, b"\xff\xd8\xff", "JPEG image"),
    (0, b"GIF87a", "GIF image"),
    (0, b"GIF89a", "GIF image"),
    (8, b"WEBP", "WebP image"),
    (8, b"WAVE", "WAV audio"),
    (8, b"AVI ", "AVI video"),
    (0, b"II*\0", "TIFF image"),
    (0, b"MM\0*", "TIFF image"),
    (0, b"\0\0\1\0", "icon"),
    (0, b"%PDF-", "PDF document"),
    (0, b"PK\3\4", "ZIP archive"),
    (0, b"PK\5\6", "empty ZIP archive"),
    (0, b"\x1f\x8b", "gzip archive"),
    (0, b"\x28\xb5\x2f\xfd", "zstd archive"),
    (0, b"\xfd7zXZ\0", "xz archive"),
    (0, b"BZh", "bzip2 archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z archive"),
    (257, b"ustar", "tar archive"),
    (0, b"\x7fELF", "ELF program"),
    (0, b"MZ", "Windows program"),
    (0, b"\xcf\xfa\xed\xfe", "Mach-O program"),
    (0, b"\xca\xfe\xba\xbe", "Java class"),
    (0, b"\0asm", "WebAssembly module"),
    (0, b"SQLite format 3\0", "SQLite database"),
    (0, b"PAR1", "Parquet file"),
    (0, b"\x93NUMPY", "NumPy array"),
    (0, b"\x89HDF\r\n", "HDF5 file"),
    (4, b"ftyp", "MP4 video"),
    (0, b"ID3", "MP3 audio"),
    (0, b"OggS", "Ogg audio"),
    (0, b"fLaC", "FLAC audio"),
    (0, b"wOFF", "font"),
    (0, b"wOF2", "font"),
)
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_SAMPLE = 8192


def as_text(body: bytes) -> str | None:
    """The bytes decoded as text, with a few invalid characters replaced. None if they are not text."""
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    if b"\0" in body[:_SAMPLE] or body.startswith(b"%PDF-"):
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        text = body.decode("utf-8", "replace")
    return text if _kind(body) == "binary" and text.count("\ufffd") * 50 < len(text) + 50 else None


def binary(body: bytes) -> Sketch:
    """The sketch of binary data: file type, size and the beginning of its SHA-256."""
    kind = _kind(body)
    if kind == "PNG image" and body[12:16] == b"IHDR" and len(body) >= 24:
        width, height = int.from_bytes(body[16:20], "big"), int.from_bytes(body[20:24], "big")
        kind = f"{kind} of {width} x {height}"
    address = Piece(Slot.SHAPE, f"sha256 {hashlib.sha256(body).hexdigest()[:16]}", 0.5)
    return Sketch(f"{kind}, {len(body):,} bytes", [address])


def _kind(body: bytes) -> str:
    for offset, magic, name in _KINDS:
        if body.startswith(magic, offset):
            return name
    return "binary"
