"""Lines of a file descriptor, awaited. The thread that reads holds no lock that an exit would wait for."""

from __future__ import annotations

import asyncio
import os
import threading

CHUNK = 65_536


class Lines:
    """The lines of `fd`, as bytes, in order; the last one may end without a newline."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        threading.Thread(target=self._read, name="rewake-stdin", daemon=True).start()

    async def next(self) -> bytes | None:
        """The next line; None at the end."""
        return await self._lines.get()

    def _read(self) -> None:
        rest: list[bytes] = []
        while chunk := self._chunk():
            head, newline, tail = chunk.partition(b"\n")
            rest.append(head)
            while newline:
                self._put(b"".join(rest))
                head, newline, tail = tail.partition(b"\n")
                rest = [head]
        if any(rest):
            self._put(b"".join(rest))
        self._put(None)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._fd, CHUNK)
        except OSError:
            return b""

    def _put(self, line: bytes | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:
            return
