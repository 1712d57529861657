"""A whole state as bytes, and back: for snapshots, and for comparing two states."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from operator import is_
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec
from immutables import Map
from pyrsistent import PDeque, PVector, pdeque, pvector

S = TypeVar("S")

LEVEL = 1
"""How hard a state is packed: it repeats what the log has already, and the quickest level takes most of that away."""

CHUNK = 256
"""Items of a persistent vector that are packed together: a vector that has grown begins with the same bytes."""


def plain(value: Any) -> Any:
    """Persistent collections as the built-in ones, for the encoder."""
    if isinstance(value, Map):
        return dict(cast("Map[Any, Any]", value))
    if isinstance(value, PVector):
        return list(cast("PVector[Any]", value))
    if isinstance(value, PDeque):
        return list(cast("PDeque[Any]", value))
    raise NotImplementedError(repr(value))


_encoder = msgspec.json.Encoder(enc_hook=plain, order="deterministic")


class Packing:
    """Encodes one actor's states. A chunk that has the very same items as in the state before is not encoded again."""

    def __init__(self) -> None:
        self.encoder = msgspec.msgpack.Encoder(enc_hook=self.chunked, order="deterministic")
        self.former: dict[int, tuple[list[Any], bytes]] = {}
        self.found: dict[int, tuple[list[Any], bytes]] = {}

    def encode(self, state: Any) -> bytes:
        """A state as MessagePack, its collections packed; the same bytes for equal states. Raises OverflowError where it
        has an integer of more than 64 bits, as a tool's arguments may.
        """
        self.former, self.found = self.found, {}
        return self.encoder.encode(state)

    def chunked(self, value: Any) -> list[bytes]:
        """A persistent collection in chunks that are decoded by themselves: at once as what they hold."""
        found = plain(value)
        if isinstance(found, dict):
            return [self.packed(found)]
        return [self.chunk(found[start : start + CHUNK]) for start in range(0, len(found), CHUNK)]

    def chunk(self, items: list[Any]) -> bytes:
        key = id(items[0])
        known = self.former.get(key)
        if known is None or len(known[0]) != len(items) or not all(map(is_, known[0], items)):
            known = items, self.packed(items)
        self.found[key] = known
        return known[1]

    def packed(self, items: Any) -> bytes:
        return zlib.compress(self.encoder.encode(items), LEVEL)


class Unpacking:
    """Decodes states. What one has in common with the one decoded before it, an agent's drain with the agent, is the
    same object in both.
    """

    def __init__(self) -> None:
        self.decoders: dict[Any, Callable[[bytes], Any]] = {}
        self.former: dict[tuple[Any, bytes], Any] = {}
        self.found: dict[tuple[Any, bytes], Any] = {}

    def decode(self, state: bytes, type: type[S]) -> S:
        """The state again. Raises msgspec.DecodeError, or its ValidationError when it is not of that type."""
        self.former, self.found = self.found, {}
        try:
            return msgspec.msgpack.decode(state, type=type, dec_hook=self.persistent)
        except (zlib.error, TypeError, ValueError) as error:
            raise msgspec.DecodeError(f"not a packed state: {error}") from error

    def persistent(self, wanted: Any, value: Any) -> Any:
        """The chunks of a collection as the persistent one that a field is annotated with."""
        origin, inner = get_origin(wanted), get_args(wanted)
        if origin is Map:
            (chunk,) = value
            return self.shared(chunk, wanted, dict[inner[0], inner[1]], Map)
        items = [one for chunk in value for one in self.shared(chunk, wanted, list[inner[0]], list)]
        if origin is PVector:
            return pvector(items)
        if origin is PDeque:
            return pdeque(items)
        raise NotImplementedError(wanted)

    def shared(self, chunk: bytes, wanted: Any, plainly: Any, made: Callable[[Any], Any]) -> Any:
        key = wanted, chunk
        found = self.former.get(key)
        if found is None:
            found = made(self.decoder(wanted, plainly)(zlib.decompress(chunk)))
        self.found[key] = found
        return found

    def decoder(self, wanted: Any, plainly: Any) -> Callable[[bytes], Any]:
        if (decoder := self.decoders.get(wanted)) is None:
            decoder = self.decoders[wanted] = msgspec.msgpack.Decoder(plainly, dec_hook=self.persistent).decode
        return decoder


def encode(state: Any) -> bytes:
    """One state by itself."""
    return Packing().encode(state)


def decode(state: bytes, type: type[S]) -> S:
    """One state by itself."""
    return Unpacking().decode(state, type)


def digest(state: Any) -> str:
    """Equal states have equal digests."""
    return hashlib.blake2b(_encoder.encode(state), digest_size=16).hexdigest()
