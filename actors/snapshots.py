"""A whole state as bytes, and back: for snapshots, and for comparing two states.

The pages of a long sequence are apart from the state, each by its digest: one that does not change is kept once, for all
snapshots that have it, and is decoded when somebody looks at it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec
from immutables import Map
from pyrsistent import PDeque, PVector, pdeque, pvector

from rewake.events.schema import DIGEST
from rewake.projections.pages import Page, Pages

S = TypeVar("S")

LEVEL = 1
"""How hard a state is packed: it repeats what the log has already, and the quickest level takes most of that away."""


class Packed(NamedTuple):
    """A state as bytes, and the pages that it names, by their digests."""

    state: bytes
    pages: dict[bytes, bytes]


def plain(value: Any) -> Any:
    """Persistent collections as the built-in ones, for the encoder."""
    if isinstance(value, Map):
        return dict(cast("Map[Any, Any]", value))
    if isinstance(value, PVector | PDeque | Pages):
        return list(cast("Iterable[Any]", value))
    raise NotImplementedError(repr(value))


_encoder = msgspec.json.Encoder(enc_hook=plain, order="deterministic")


class Packing:
    """Encodes one state. A page that was encoded once is not encoded again."""

    def __init__(self) -> None:
        self.encoder = msgspec.msgpack.Encoder(enc_hook=self.apart, order="deterministic")
        self.pages: dict[bytes, bytes] = {}

    def encode(self, state: Any) -> Packed:
        return Packed(zlib.compress(self.encoder.encode(state), LEVEL), self.pages)

    def apart(self, value: Any) -> Any:
        """A persistent collection as bytes that are decoded by themselves: at once as what they hold."""
        if not isinstance(value, Pages):
            return self.encoder.encode(plain(value))
        found = cast("Pages[Any]", value)
        return [self.digest(page) for page in found.pages], self.encoder.encode(found.tail)

    def digest(self, page: Page[Any]) -> bytes:
        if page.packed is None:
            parts = page.ids(), page.items[:1], page.items
            data = self.encoder.encode([zlib.compress(self.encoder.encode(one), LEVEL) for one in parts])
            page.packed = digested(data), data
        digest, data = page.packed
        self.pages[digest] = data
        return digest


class StoredPage:
    """A page as it was packed: its ids, its first item by itself, and all of them, as a decoder gives them."""

    def __init__(self, data: bytes, decode: Callable[[bytes], list[Any]]) -> None:
        self.data = data
        self.decode = decode

    def ids(self) -> list[str]:
        return msgspec.msgpack.decode(self._part(0), type=list[str])

    def first(self) -> Any:
        return self.decode(self._part(1))[0]

    def items(self) -> list[Any]:
        return self.decode(self._part(2))

    def _part(self, number: int) -> bytes:
        return zlib.decompress(msgspec.msgpack.decode(self.data, type=list[bytes])[number])


class Unpacking:
    """Decodes states. What one has in common with another, an agent's drain with the agent, is the same object in both."""

    def __init__(self) -> None:
        self.decoders: dict[Any, Callable[[bytes], Any]] = {}
        self.former: dict[tuple[Any, bytes], Any] = {}
        self.found: dict[tuple[Any, bytes], Any] = {}
        self.pages: dict[tuple[Any, bytes], Page[Any]] = {}
        self.data: dict[bytes, bytes] = {}

    def lacking(self, digests: Iterable[bytes]) -> list[bytes]:
        """Those of the pages that it does not have yet."""
        return [digest for digest in digests if digest not in self.data]

    def decode(self, packed: Packed, type: type[S]) -> S:
        """The state again. Raises msgspec.DecodeError, or its ValidationError when it is not of that type."""
        self.former, self.found = self.found, {}
        for digest, data in packed.pages.items():
            if digested(data) != digest:
                raise msgspec.DecodeError("a page is damaged")
        self.data |= packed.pages
        try:
            return msgspec.msgpack.decode(zlib.decompress(packed.state), type=type, dec_hook=self.persistent)
        except (zlib.error, TypeError, ValueError) as error:
            raise msgspec.DecodeError(f"not a packed state: {error}") from error

    def persistent(self, wanted: Any, value: Any) -> Any:
        """What a field is annotated with, of the bytes of its items."""
        origin, inner = get_origin(wanted), get_args(wanted)
        if origin is Map:
            return self.shared(value, wanted, dict[inner[0], inner[1]], Map)
        if origin is PVector:
            return self.shared(value, wanted, list[inner[0]], pvector)
        if origin is PDeque:
            return self.shared(value, wanted, list[inner[0]], pdeque)
        if origin is Pages:
            digests, tail = value
            decode = self.decoder(wanted, list[inner[0]])
            pages = tuple(self.page(digest, wanted, decode) for digest in digests)
            if pages:
                _ = pages[-1].items  # so a type that has changed is found out here, not when somebody looks
            return Pages(pages, self.shared(tail, wanted, list[inner[0]], tuple))
        raise NotImplementedError(wanted)

    def page(self, digest: bytes, wanted: Any, decode: Callable[[bytes], list[Any]]) -> Page[Any]:
        if (page := self.pages.get((wanted, digest))) is None:
            if (data := self.data.get(digest)) is None:
                raise msgspec.DecodeError("a page is missing")
            page = self.pages[wanted, digest] = Page(None, StoredPage(data, decode), (digest, data))
        return page

    def shared(self, packed: bytes, wanted: Any, plainly: Any, made: Callable[[Any], Any]) -> Any:
        key = wanted, packed
        found = self.former.get(key)
        if found is None:
            found = made(self.decoder(wanted, plainly)(packed))
        self.found[key] = found
        return found

    def decoder(self, wanted: Any, plainly: Any) -> Callable[[bytes], Any]:
        if (decoder := self.decoders.get(wanted)) is None:
            decoder = self.decoders[wanted] = msgspec.msgpack.Decoder(plainly, dec_hook=self.persistent).decode
        return decoder


def encode(state: Any) -> Packed:
    """A state as MessagePack, packed; the same bytes for equal states. Raises OverflowError where it has an integer of more
    than 64 bits, as a tool's arguments may.
    """
    return Packing().encode(state)


def decode(packed: Packed, type: type[S]) -> S:
    """One state by itself."""
    return Unpacking().decode(packed, type)


def digested(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def digest(state: Any) -> str:
    """Equal states have equal digests."""
    return hashlib.blake2b(_encoder.encode(state), digest_size=16).hexdigest()
