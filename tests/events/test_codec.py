"""The codec: a closed union on the way out, patience on the way in."""

import importlib
import pkgutil
from typing import Any

import msgspec
import pytest

import rewake.events
from rewake.events import EVENTS, AgentEvent, Event, Recorded, Text, ToolCall, Unknown, Wake, WakeWithdrawn
from rewake.events.codec import UPCASTS, Undecodable, decode, encode
from rewake.events.messages import MessageAdded


def every(event: type[Event]) -> set[type[Event]]:
    return {event}.union(*(every(sub) for sub in event.__subclasses__()))


def test_every_event_is_in_the_union_and_in_the_vocabulary():
    for module in pkgutil.iter_modules(rewake.events.__path__):
        importlib.import_module(f"rewake.events.{module.name}")
    ours = {event for event in every(Event) if event.__module__.startswith("rewake.events.")}
    assert ours - {Event, AgentEvent, Unknown} == set(EVENTS.values())
    assert {event.__name__ for event in ours} <= set(rewake.events.__all__)


def test_a_kind_is_its_class_in_snake_case():
    names = {event.__name__: kind.title().replace("_", "") for kind, event in EVENTS.items()}
    assert all(name == spoken for name, spoken in names.items())


def test_the_vocabulary_is_all_there():
    assert [name for name in rewake.events.__all__ if not hasattr(rewake.events, name)] == []


def test_an_event_comes_back_as_it_went():
    blocks = (Text("hé\x00 \U0001f600"), ToolCall("c1", "look", {"deep": [1, {"a": None}]}))
    event = MessageAdded(role="user", blocks=blocks, tokens=3, encoding="e", id="ada/msg/1", agent="ada")
    assert decode("message_added", encode(event)) == event


def test_defaults_are_not_written():
    assert encode(Wake(reason="nudge")) == b'{"kind":"wake","reason":"nudge"}'


def test_an_unknown_kind_is_kept_whole():
    data = b'{"kind": "sang",  "song": 1e3}'
    event = decode("sang", data)
    assert isinstance(event, Unknown)
    assert (event.kind, encode(event)) == ("sang", data)


def test_an_extra_field_is_read_over():
    assert decode("wake", b'{"kind":"wake","reason":"x","colour":"red"}') == Wake(reason="x")


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"kind":"wake"}', b'{"kind":"wake","reason":7}', b'{"kind":"held"}', b"\xff"]
)
def test_a_known_kind_that_does_not_decode_is_an_error(data: bytes):
    with pytest.raises(Undecodable, match="wake"):
        decode("wake", data)


def test_data_of_another_kind_is_an_error():
    with pytest.raises(Undecodable, match="recorded as wake, but its data says wake_withdrawn"):
        decode("wake", encode(WakeWithdrawn(wakes=(), why="retracted")))


def test_an_old_shape_is_upcast(monkeypatch: pytest.MonkeyPatch):
    def reason(shape: dict[str, Any]) -> dict[str, Any]:
        return shape if "reason" in shape else {"kind": "wake", "reason": shape["because"]}

    monkeypatch.setitem(UPCASTS, "wake", [reason])
    assert decode("wake", b'{"kind":"wake","because":"x"}') == Wake(reason="x")
    assert decode("wake", b'{"kind":"wake","reason":"x"}') == Wake(reason="x")


def test_a_renamed_event_is_upcast_through_its_new_kind(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(UPCASTS, "nudge", [lambda shape: {**shape, "kind": "wake"}])
    monkeypatch.setitem(UPCASTS, "wake", [lambda shape: {"reason": "none", **shape}])
    assert decode("nudge", b'{"kind":"nudge"}') == Wake(reason="none")


def test_an_upcast_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(UPCASTS, "wake", [lambda shape: {"reason": shape["because"]}])
    with pytest.raises(Undecodable):
        decode("wake", b'{"kind":"wake"}')


def test_a_recorded_event_shows_every_field():
    recorded = Recorded(1, 2, "agent/ada", 3, None, 0, Unknown("sang", msgspec.Raw(b"{}")))
    assert repr(recorded).startswith("Recorded(seq=1, at=2, stream='agent/ada', version=3, cause=None, read=0, event=")
