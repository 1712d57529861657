"""The calls that change what runs: agents come and go, a turn is aborted, what waits is withdrawn."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from itertools import chain, count
from typing import Literal

from msgspec.structs import replace

from rewake.actors.agent.commands import Abort, Cancel, Dispose
from rewake.actors.config import AgentConfig
from rewake.actors.contents import Content, blocks_of, text, text_or_none
from rewake.actors.incarnation import Answer
from rewake.actors.reports import AbortReport, CancelReport, Result
from rewake.actors.surface import Duration, Surface
from rewake.events import (
    InvalidSetting,
    Log,
    MessageAdded,
    RewakeError,
    TurnAborted,
    TurnNotRunning,
    TurnWithdrawn,
    WakeWithdrawn,
)
from rewake.events.errors import Quiesced


class Operated(Surface):
    """Everything that can be asked of agents, with what an operator does to them."""

    @abstractmethod
    def _emitted(self, call: str) -> str:
        """What the provider has said so far in a call that is in flight."""

    @abstractmethod
    def _launch(self, config: AgentConfig, once: bool = False) -> None:
        """Start an agent's actors, or give those that run another configuration."""

    @abstractmethod
    def _leave(self, name: str) -> None:
        """Let go of a disposed agent's actors."""

    @abstractmethod
    def _forbid_waiting(self, call: str) -> None:
        """Raise CalledFromInside where nothing can be waited for."""

    def abort(self, agent: str, *, turn: str | None = None, reason: str = "") -> AbortReport:
        """End the agent's turn, or the one of that id, wherever it is: asked about, sent, in a tool, between retries, held.

        What the model had said so far is kept as a partial message; no marker tells the agent of a failure; the next wake
        runs. Raises TurnNotRunning when that turn, or any, has not started or has ended; then nothing was appended.
        """
        state = self._agent(agent)
        present = state.turns.running or state.turns.held
        asked = text_or_none("turn", turn) or (present.id if present else "")
        text("reason", reason)
        call = state.turns.running.call if state.turns.running else None
        open_call, said = (call.call, self._emitted(call.call)) if call else ("", "")
        return aborted(asked, self._ask(state.stream, Abort(asked, reason, open_call, said)))

    def cancel(self, agent: str, *, drop: Literal["machine", "all"] = "machine") -> CancelReport:
        """Withdraw what no turn works on: wakes that are queued, held, or wait for a retry, with the messages that they came
        with when no request has had them. A wait ends with its last cause.

        What people sent (a message that is addressed) stays owed, unless `drop` is "all".
        """
        if drop not in ("machine", "all"):
            raise InvalidSetting("drop", drop, "machine or all")
        state = self._agent(agent)
        return cancelled(agent, self._ask(state.stream, Cancel(drop)))

    def start(self, config: AgentConfig, *, channel: str | None = None) -> None:
        """Start an agent at run time, or go on with another configuration of one that runs.

        Raises InvalidSetting for the name of a disposed agent.
        """
        if channel is not None:
            raise InvalidSetting("channel", channel, "conversations are not supported by this version")
        self._launch(config)

    def dispose(self, agent: str, *, reason: str = "") -> None:
        """End an agent: its turn, what it owes. Its events stay, its name is not used again."""
        state = self._agent(agent)
        text("reason", reason)
        self._ask(state.stream, Dispose(reason))
        self._configs.pop(agent, None)

    def run_once(self, config: AgentConfig, content: Content, timeout: Duration = None) -> Result:
        """One run of an agent made for it: a context that does not fit fails at once, and the agent is disposed afterwards.

        Past the timeout the run is aborted. A name that is taken gets a number. Raises Quiesced, InvalidContent,
        EventTooLarge; then nothing was appended.
        """
        self._forbid_waiting("run_once")
        blocks = blocks_of(content)
        if self._states("host")["host"].quiesced:
            raise Quiesced("the host is quiesced: nothing new runs before it is resumed")
        name = unused(config.name, self.log)
        try:
            self._launch(replace(config, name=name, kind="ephemeral"), once=True)
            receipt = super().push(name, blocks)
            result = super().result(receipt, timeout)
            if not result.ended:
                self._stop_run(name, result.why)
                result = super().result(receipt, 0)
            return result
        finally:
            self._end_run(name)

    def _stop_run(self, name: str, waited: str) -> None:
        """Past its time: it ends, and says what it waited for."""
        with suppress(TurnNotRunning):
            self.abort(name, reason=f"the run took too long: {waited}")

    def _end_run(self, name: str) -> None:
        """Whatever became of a run, nothing of it waits."""
        with suppress(RewakeError):
            self.dispose(name, reason="its run is over")
        self._leave(name)


def aborted(turn: str, answer: Answer) -> AbortReport:
    """What an abort ended."""
    past = next(one for one in reversed(answer.state.turns.past) if one.id == turn)
    events = [recorded.event for recorded in answer.recorded]
    kept = next((one.id for one in events if isinstance(one, MessageAdded) and one.partial), None)
    return AbortReport(turn, past.wakes, kept)


def cancelled(agent: str, answer: Answer) -> CancelReport:
    """What a cancel withdrew and ended."""
    events = [recorded.event for recorded in answer.recorded]
    if not events or not isinstance(gone := events[0], WakeWithdrawn):
        return CancelReport(agent, kept=tuple(one.id for one in answer.state.wakes.owed))
    turn = next((one.turn for one in events if isinstance(one, TurnAborted | TurnWithdrawn)), None)
    return CancelReport(agent, gone.wakes, gone.messages, turn, tuple(one.id for one in answer.state.wakes.owed))


def unused(name: str, log: Log) -> str:
    """The name, or with the first number that makes it one that no agent of the log has."""
    taken = set(log.streams())
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(one for one in names if f"agent/{one}" not in taken)
