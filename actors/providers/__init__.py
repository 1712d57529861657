"""Model providers behind one port: what they are asked, what they answer, how they fail; one answers from a script."""

from __future__ import annotations

from rewake.actors.providers.base import Message, OnDelta, Provider, Reply, Request, validate
from rewake.actors.providers.failures import (
    AuthFailed,
    ContentRefused,
    ContextOverflow,
    InvalidRequest,
    ProviderError,
    ProviderLimit,
    ProviderOverloaded,
    ProviderTimeout,
    ServerError,
    TransportError,
    failure_of,
)
from rewake.actors.providers.script import (
    auth,
    call_tool,
    drop,
    invalid,
    limit,
    overflow,
    overloaded,
    refused,
    reply,
    server_error,
    slow,
)
from rewake.actors.providers.scripted import ScriptedProvider, ScriptExhausted

__all__ = [
    "AuthFailed",
    "ContentRefused",
    "ContextOverflow",
    "InvalidRequest",
    "Message",
    "OnDelta",
    "Provider",
    "ProviderError",
    "ProviderLimit",
    "ProviderOverloaded",
    "ProviderTimeout",
    "Reply",
    "Request",
    "ScriptExhausted",
    "ScriptedProvider",
    "ServerError",
    "TransportError",
    "auth",
    "call_tool",
    "drop",
    "failure_of",
    "invalid",
    "limit",
    "overflow",
    "overloaded",
    "refused",
    "reply",
    "server_error",
    "slow",
    "validate",
]
