"""A whole state as bytes, and back: for snapshots, and for comparing two states."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec
from immutables import Map
from pyrsistent import PDeque, PVector, pdeque, pvector

S = TypeVar("S")


def plain(value: Any) -> Any:
    """Persistent collections as the built-in ones, for the encoder."""
    if isinstance(value, Map):
        return dict(cast("Map[Any, Any]", value))
    if isinstance(value, PVector):
        return list(cast("PVector[Any]", value))
    if isinstance(value, PDeque):
        return list(cast("PDeque[Any]", value))
    raise NotImplementedError(repr(value))


def persistent(wanted: Any, value: Any) -> Any:
    """A built-in collection as the persistent one that a field is annotated with."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is PVector:
        return pvector(msgspec.convert(value, list[inner[0]], dec_hook=persistent))
    if origin is PDeque:
        return pdeque(msgspec.convert(value, list[inner[0]], dec_hook=persistent))
    if origin is Map:
        return Map(msgspec.convert(value, dict[inner[0], inner[1]], dec_hook=persistent))
    raise NotImplementedError(wanted)


_encoder = msgspec.json.Encoder(enc_hook=plain, order="deterministic")


LEVEL = 1
"""How hard a state is packed: it repeats what the log has already, and the quickest level takes most of that away."""


def encode(state: Any) -> bytes:
    """A state as packed JSON, the same bytes for equal states."""
    return zlib.compress(_encoder.encode(state), LEVEL)


def decode(state: bytes, type: type[S]) -> S:
    """The state again. Raises msgspec.DecodeError, or its ValidationError when it is not of that type."""
    try:
        text = zlib.decompress(state)
    except zlib.error as error:
        raise msgspec.DecodeError(f"not a packed state: {error}") from error
    return msgspec.json.decode(text, type=type, dec_hook=persistent)


def digest(state: Any) -> str:
    """Equal states have equal digests."""
    return hashlib.blake2b(_encoder.encode(state), digest_size=16).hexdigest()
