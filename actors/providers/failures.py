"""How a call to a provider fails, and what the log keeps of it.

ProviderError                   kind               again?
├── ProviderLimit               limit              yes, after `retry_after`
├── ProviderOverloaded          overloaded         yes
├── ServerError                 server             yes
├── TransportError              transport          yes
├── ProviderTimeout             timeout            yes
├── ContextOverflow             overflow           no: the request must become smaller
├── InvalidRequest              invalid_request    no
├── AuthFailed                  auth               no
└── ContentRefused              content_refused    no
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any, ClassVar

from rewake.events.base import Millis, Tokens
from rewake.events.errors import RewakeError
from rewake.events.turns import Failure

LONGEST = 2_000
"""The most characters of a failure's message that are kept."""

NEVER_MS: Millis = 2**53 - 1
"""A stated wait that no clock can represent: only an operator ends it."""

SECRETS = re.compile(
    r"""
    \b(?:sk|pk|rk|gsk|xai|gh[opsur]|glpat|github_pat|nvapi|xox[abeprs])[-_][\w*-]{8,}   # the shapes that keys come in
    | \bAIza[\w-]{20,} | \bya29\.[\w-]{20,} | \b(?:hf|r8)_\w{20,} | \b(?:AKIA|ASIA)[A-Z0-9]{16} | \beyJ[\w-]+\.[\w-]+\.[\w-]+
    | (?<=://)[^\s/@"']+:[^\s/@"']+(?=@)                                                  # a URL's user and password
    | (?<=\bbearer\s)(?!\[masked\])[^\s"',;]+ | (?<=\bbasic\s)(?=[\w+/-]*[\d=])[\w+/=-]{8,}
    | (?:key|token|secret|passw(?:or)?d|authorization|bearer|basic|credentials?|signature)   # what is called one
      (?:%(?:20|22|3[AD])|[\W]|\b(?:is|was|provided|given|used|b|u|invalid|incorrect)\b){1,16}
      (?P<named>(?=[^\s"']{0,200}\d)[\w+/=.*-]{16,})
    """,
    re.IGNORECASE | re.VERBOSE,
)


class ProviderError(RewakeError):
    """A provider did not answer. What is said is a message, or, as a number, the wait in seconds that it asks for.

    `retry_after` is that wait in seconds, None when none was stated; `status` the HTTP status; `emitted` the text that
    had come before the failure.
    """

    kind: ClassVar[str] = "unknown"
    default: ClassVar[str] = "the provider failed"
    retryable: bool = True
    retry_after: float | None
    status: int | None
    emitted: str

    def __init__(
        self,
        said: str | float | timedelta = "",
        *,
        retry_after: float | timedelta | None = None,
        status: int | None = None,
        emitted: str = "",
        **fields: Any,
    ) -> None:
        wait = retry_after if isinstance(said, str) else said
        super().__init__(
            (said if isinstance(said, str) else "") or self.default,
            retry_after=wait.total_seconds() if isinstance(wait, timedelta) else wait,
            status=status,
            emitted=emitted,
            **fields,
        )


class ProviderLimit(ProviderError):
    """A rate limit or a quota is used up, until `retry_after` seconds from now where the provider says so."""

    kind = "limit"
    default = "the provider's limit is reached"


class ProviderOverloaded(ProviderError):
    """The provider has no room at all at the moment (529, 503)."""

    kind = "overloaded"
    default = "the provider is overloaded"


class ServerError(ProviderError):
    """The provider broke (5xx)."""

    kind = "server"
    default = "the provider had an internal error"


class TransportError(ProviderError):
    """The connection was not made, or was lost; `emitted` came before."""

    kind = "transport"
    default = "the connection was lost"


class ProviderTimeout(ProviderError):
    """No whole answer in time."""

    kind = "timeout"
    default = "the provider did not answer in time"


class ContextOverflow(ProviderError):
    """The request is too long: `counted` tokens of input against `limit`, each None where the provider does not say."""

    kind = "overflow"
    retryable = False
    counted: Tokens | None
    limit: Tokens | None

    def __init__(
        self,
        counted: Tokens | str | None = None,
        limit: Tokens | None = None,
        message: str = "",
        *,
        retry_after: float | timedelta | None = None,
        status: int | None = None,
        emitted: str = "",
    ) -> None:
        if isinstance(counted, str):
            counted, message = None, counted
        numbers = f": {counted:,} tokens" if counted is not None else ""
        numbers += f" against {limit:,}" if limit is not None else ""
        super().__init__(
            message or f"the request is too long{numbers}",
            retry_after=retry_after,
            status=status,
            emitted=emitted,
            counted=counted,
            limit=limit,
        )


class InvalidRequest(ProviderError):
    """The provider does not take a request of this form, now or ever."""

    kind = "invalid_request"
    default = "the provider refused the request"
    retryable = False


class AuthFailed(ProviderError):
    """The provider does not know the credentials, or they may not do this."""

    kind = "auth"
    default = "the provider refused the credentials"
    retryable = False


class ContentRefused(ProviderError):
    """The provider will not work with this content."""

    kind = "content_refused"
    default = "the provider refused the content"
    retryable = False


def failure_of(error: BaseException) -> Failure:
    """What the log keeps of an exception; one that is no `ProviderError` is `unknown`, and tried again."""
    known = isinstance(error, ProviderError)
    return Failure(
        kind=error.kind if known else "unknown",
        message=masked(said_by(error))[:LONGEST],
        retryable=error.retryable if known else True,
        type=type(error).__name__,
        status=error.status if known else None,
        retry_after_ms=waited(error.retry_after) if known else None,
        counted=error.counted if isinstance(error, ContextOverflow) else None,
        limit=error.limit if isinstance(error, ContextOverflow) else None,
    )


def masked(text: str) -> str:
    """The text without anything that looks like a key."""
    return SECRETS.sub(mask, text)


def mask(found: re.Match[str]) -> str:
    name = found["named"]
    return found[0].replace(name, "[masked]") if name else "[masked]"


def said_by(error: BaseException) -> str:
    """An exception's message as text that can be stored: some can not even be asked for it."""
    try:
        text = str(error)
    except Exception as broken:
        text = f"(its message raised {type(broken).__name__})"
    return text[: 8 * LONGEST].encode("utf-8", "backslashreplace").decode()


def waited(seconds: float | None) -> Millis | None:
    """A stated wait in whole milliseconds, never shorter than stated."""
    if seconds is None or math.isnan(seconds):
        return None
    return NEVER_MS if seconds * 1_000 >= NEVER_MS else max(0, math.ceil(seconds * 1_000))
