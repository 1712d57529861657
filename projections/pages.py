"""A long sequence that grows at its end: in pages that never change, and are not decoded before somebody looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from immutables import Map

PAGE = 256
"""Items of a page."""


class Identified(Protocol):
    """What has an id of its own in a sequence."""

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Identified)


class Stored(Protocol[T]):
    """A page as it was stored."""

    def ids(self) -> list[str]: ...

    def first(self) -> T: ...

    def items(self) -> list[T]: ...


class Page(Generic[T]):
    """`PAGE` neighbours of a sequence. `packed` is what a snapshot has made of them, or was restored from."""

    __slots__ = ("_first", "_items", "packed", "stored")

    def __init__(self, items: tuple[T, ...] | None, stored: Stored[T] | None = None, packed: Any = None) -> None:
        self._items = items
        self._first: T | None = None
        self.stored = stored
        self.packed = packed

    @property
    def items(self) -> tuple[T, ...]:
        items = self._items
        if items is None:
            items = self._items = tuple(cast("Stored[T]", self.stored).items())
        return items

    @property
    def first(self) -> T:
        """The first of its items: of a stored page without decoding the others."""
        if self._items is not None:
            return self._items[0]
        if self._first is None:
            self._first = cast("Stored[T]", self.stored).first()
        return self._first

    @property
    def decoded(self) -> bool:
        """Whether somebody has looked at its items."""
        return self._items is not None

    def ids(self) -> list[str]:
        """The ids of its items: of a stored page without decoding those."""
        if self._items is None:
            return cast("Stored[T]", self.stored).ids()
        return [one.id for one in self._items]


class Places(Mapping[str, int]):
    """Where each id stands. Those of the beginning are gathered when one is asked for, once for all that grew from it."""

    __slots__ = ("base", "more")

    def __init__(self, base: Base[Any], more: Map[str, int] | None = None) -> None:
        self.base = base
        self.more: Map[str, int] = Map() if more is None else more

    def __getitem__(self, id: str) -> int:
        found = self.get(id)
        if found is None:
            raise KeyError(id)
        return found

    def get(self, id: str, default: Any = None) -> Any:
        found = self.more.get(id)
        return found if found is not None else self.base.places.get(id, default)

    def __contains__(self, id: object) -> bool:
        return id in self.more or id in self.base.places

    def __iter__(self) -> Iterator[str]:
        return chain(self.base.places, self.more)

    def __len__(self) -> int:
        return self.base.count + len(self.more)


class Base(Generic[T]):
    """The places of what a sequence began with."""

    __slots__ = ("_pages", "_places", "_tail", "count")

    def __init__(self, pages: tuple[Page[T], ...], tail: tuple[T, ...]) -> None:
        self.count = len(pages) * PAGE + len(tail)
        self._pages = pages
        self._tail = tail
        self._places: dict[str, int] | None = None

    @property
    def places(self) -> dict[str, int]:
        places = self._places
        if places is None:
            ids = chain(chain.from_iterable(page.ids() for page in self._pages), [one.id for one in self._tail])
            places = self._places = {id: place for place, id in enumerate(ids)}
        return places


class Pages(Sequence[T]):
    """A persistent sequence: `append` gives another one, which shares everything with this one.

    `derived` is what somebody has worked out of these very items: kept with them, and no part of what they are.
    """

    __slots__ = ("derived", "pages", "places", "sealed", "tail")

    def __init__(self, pages: tuple[Page[T], ...] = (), tail: tuple[T, ...] = (), places: Places | None = None) -> None:
        self.derived: Any = None
        self.pages = pages
        self.tail = tail
        self.sealed = len(pages) * PAGE
        self.places = Places(Base(pages, tail)) if places is None else places

    def append(self, item: T) -> Pages[T]:
        """This sequence and one more item."""
        places = Places(self.places.base, self.places.more.set(item.id, len(self)))
        tail = (*self.tail, item)
        return Pages(self.pages, tail, places) if len(tail) < PAGE else Pages((*self.pages, Page(tail)), (), places)

    def __len__(self) -> int:
        return self.sealed + len(self.tail)

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...

    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            found = self.between(start, stop)
            return found if step == 1 else tuple(self[place] for place in range(start, stop, step))
        if at >= self.sealed:
            return self.tail[at - self.sealed]
        if at < 0 and (at := at + len(self)) >= self.sealed:
            return self.tail[at - self.sealed]
        if at < 0:
            raise IndexError(at)
        page, at = self.pages[at // PAGE], at % PAGE
        return page.items[at] if at else page.first

    def between(self, start: int, stop: int) -> tuple[T, ...]:
        """The items from place `start` to place `stop` (exclusive)."""
        sealed = self.sealed
        if start >= sealed:
            return self.tail[start - sealed : max(0, stop - sealed)]
        parts = [self.pages[at].items for at in range(start // PAGE, (min(stop, sealed) + PAGE - 1) // PAGE)]
        if parts and stop < sealed and stop % PAGE:
            parts[-1] = parts[-1][: stop % PAGE]
        if parts and start % PAGE:
            parts[0] = parts[0][start % PAGE :]
        if stop > sealed:
            parts.append(self.tail[: stop - sealed])
        return tuple(chain.from_iterable(parts))

    def __iter__(self) -> Iterator[T]:
        for page in self.pages:
            yield from page.items
        yield from self.tail

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pages):
            return NotImplemented
        others = cast("Pages[T]", other)
        return self is others or (
            self.tail == others.tail
            and len(self.pages) == len(others.pages)
            and all(one is two or one.items == two.items for one, two in zip(self.pages, others.pages, strict=True))
        )

    def __hash__(self) -> int:
        return hash((len(self), self.tail))

    def __repr__(self) -> str:
        return f"Pages({list(self)!r})"


def paged(items: Sequence[T]) -> Pages[T]:
    """These items as a sequence."""
    whole = len(items) // PAGE * PAGE
    pages = tuple(Page(tuple(items[start : start + PAGE])) for start in range(0, whole, PAGE))
    return Pages(pages, tuple(items[whole:]))
