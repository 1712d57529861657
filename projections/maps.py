"""Persistent maps: those of the `immutables` package, which share all that did not change."""

from __future__ import annotations

from typing import TypeVar

from immutables import Map

K = TypeVar("K")
V = TypeVar("V")


def without(entries: Map[K, V], key: K) -> Map[K, V]:
    """The map without that key, whether or not it was there."""
    return entries.delete(key) if key in entries else entries
