"""Beside a log in use: the last event that its writer has acknowledged.

SQLite takes a write-ahead log that is damaged, cut or gone for one that ended there: what was acknowledged would be missing
in silence. So the writer notes, without a sync, how far the log reaches each time that it has committed; what the next one
finds behind that note was lost. It may be older than the log, never newer.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import blake2b

SIZE = 8


class Acknowledged:
    """The note beside the log at `path`: there while it is written, and after its process was killed."""

    def __init__(self, path: str) -> None:
        self._path = path + "-head"
        self._file: int | None = None

    def seq(self) -> int:
        """The last event that is known to have been acknowledged; 0 where nothing tells."""
        try:
            with open(self._path, "rb") as file:
                note = file.read(2 * SIZE)
        except OSError:
            return 0
        return int.from_bytes(note[:SIZE]) if signed(note[:SIZE]) == note else 0

    def lost(self, head: int, acknowledged: int) -> str:
        """What of the log that ends at `head` was acknowledged and is not there, in words; empty when that is nothing."""
        if acknowledged <= head:
            return ""
        return (
            f"events {head + 1} to {acknowledged} were acknowledged and are not there: the write-ahead log is damaged, gone "
            "or was not copied with the file (`rewake backup` copies both), or the file was replaced (delete "
            f"{self._path} if a copy was put back on purpose)"
        )

    def open(self) -> None:
        """Note from here on; where no file can be made nothing is noted."""
        with suppress(OSError):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)

    def note(self, seq: int) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.lseek(self._file, 0, os.SEEK_SET)
                os.write(self._file, signed(seq.to_bytes(SIZE)))

    def close(self, whole: bool) -> None:
        """`whole`: nothing is left that could be lost."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if whole:
            with suppress(OSError):
                os.unlink(self._path)


def signed(note: bytes) -> bytes:
    return note + blake2b(note, digest_size=SIZE).digest()
