"""The error policy: tenacity's stop and wait objects say whether and when a failed turn goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenacity import RetryCallState, Retrying, stop_after_attempt, wait_exponential
from tenacity.stop import stop_base
from tenacity.wait import wait_base

from rewake.events import Failure, Millis

FINAL = frozenset({"auth", "invalid_request", "content_refused", "window_full", "tool_loop", "overflow", "abort"})
"""Kinds of failure that no waiting makes better."""


@dataclass(frozen=True)
class ErrorPolicy:
    """When to stop and how long to wait, as tenacity objects. The default retries 3 times, after 1, 2 and 4 s."""

    stop: stop_base = field(default_factory=lambda: stop_after_attempt(4))
    wait: wait_base = field(default_factory=lambda: wait_exponential(multiplier=1, max=4))

    def delay(self, failure: Failure, failures: int) -> Millis | None:
        """Milliseconds to wait after the `failures`-th failure in a row; None: give up."""
        if failure.kind in FINAL:
            return None
        state = RetryCallState(Retrying(), None, (), {})
        state.attempt_number = failures
        return None if self.stop(state) else round(float(self.wait(state)) * 1_000)


DEFAULT = ErrorPolicy()
