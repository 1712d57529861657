"""Pages are a sequence like any other, whatever of it somebody has looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from rewake.projections.pages import PAGE, Page, Pages, paged


class Item(Struct, frozen=True):
    id: str


class Put:
    """A page that is put away; `looked` counts how often it was gone through."""

    def __init__(self, items: tuple[Item, ...]) -> None:
        self.put, self.looked = items, 0

    def ids(self) -> list[str]:
        return [one.id for one in self.put]

    def first(self) -> Item:
        return self.put[0]

    def items(self) -> list[Item]:
        self.looked += 1
        return list(self.put)


def items(count: int, start: int = 0) -> list[Item]:
    return [Item(f"{number}") for number in range(start, start + count)]


PLACES = st.integers(-3 * PAGE, 3 * PAGE)


@given(st.integers(0, 2 * PAGE + 9), st.integers(0, PAGE), st.lists(st.tuples(PLACES, PLACES), max_size=9))
def test_a_sequence_in_pages_is_what_a_list_is(first: int, more: int, slices: list[tuple[int, int]]):
    model, made = items(first), paged(items(first))
    made = Pages(tuple(Page(None, Put(page.items)) for page in made.pages), made.tail)
    for one in items(more, first):
        former, made, model = made, made.append(one), [*model, one]
        assert len(former) == len(made) - 1
    for start, stop in slices:
        assert made[start:stop] == tuple(model[start:stop])
    assert [made[place] for place in range(-len(model), len(model))] == [*model, *model]
    assert (list(made), len(made), list(reversed(made))) == (model, len(model), model[::-1])
    assert dict(made.places) == {one.id: place for place, one in enumerate(model)}
    assert "none" not in made.places
    assert made == paged(model)
    assert made != paged([*model, Item("one more")])


def test_a_page_is_decoded_once_when_one_of_its_items_is_looked_at():
    put = [Put(tuple(items(PAGE, start))) for start in (0, PAGE)]
    made = Pages(tuple(Page(None, one) for one in put), ())
    assert (made.places[f"{PAGE + 1}"], len(made.append(Item("x")))) == (PAGE + 1, 2 * PAGE + 1)
    assert made[0].id == "0"
    assert [one.looked for one in put] == [0, 0]
    assert (made[PAGE + 1].id, made[-1].id, made[PAGE : PAGE + 2][0].id) == ("257", "511", "256")
    assert [one.looked for one in put] == [0, 1]
