"""The shape of a state, which a snapshot's code version tells: another field, or another type of one, is another shape."""

from __future__ import annotations

import hashlib
import re
import sys
from functools import cache
from typing import Any, get_args

from msgspec import Struct

NAMES = re.compile(r"[A-Za-z_][\w.]*")


@cache
def shape(state: type) -> str:
    """A digest of all that a state is made of: each struct's fields with their annotations, each name of these resolved."""
    told: dict[str, str] = {}
    waiting: list[Any] = [state]
    while waiting:
        one = waiting.pop()
        if not (isinstance(one, type) and issubclass(one, Struct)):
            args: tuple[Any, ...] = get_args(one)
            waiting += args
            told |= {f"{one}": ""} if args else {}
        elif (name := f"{one.__module__}.{one.__qualname__}") not in told:
            fields, scope = dict(written(one)), vars(sys.modules[one.__module__])
            told[name] = repr(fields)
            waiting += [resolved(word, scope) for text in fields.values() for word in NAMES.findall(text)]
    return hashlib.blake2b(repr(sorted(told.items())).encode(), digest_size=8).hexdigest()


def written(struct: type) -> list[tuple[str, str]]:
    """A struct's fields, inherited ones too, with their annotations as they are written."""
    return [pair for base in struct.__mro__ for pair in vars(base).get("__annotations__", {}).items()]


def resolved(dotted: str, scope: dict[str, Any]) -> Any:
    """What a name of an annotation stands for; None for what is none of its module."""
    first, *rest = dotted.split(".")
    found = scope.get(first)
    for part in rest:
        found = getattr(found, part, None)
    return found
