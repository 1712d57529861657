"""An agent: woken by events, it owes each accepted wake a turn. Composed of small decisions, one module a concern."""

from rewake.actors.agent.behaviour import agent

__all__ = ["agent"]
