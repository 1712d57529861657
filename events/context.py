"""What the model is shown: a plan that fits, or a refusal, and what the provider's counts say of our prices."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from rewake.events.base import AgentEvent, Tokens

LEFT_OUT = -1
"""The level of messages that a plan leaves out on purpose: neither they nor a summary of them is shown."""


class Stretch(Struct, frozen=True, array_like=True):
    """Consecutive messages shown alike: raw at level 0, each by its level-k summary above, not at all at `LEFT_OUT`.

    Both ends are message ids. The stretches of a plan come one after the other, from the first message to the last.
    """

    level: int
    first: str
    last: str


class Overhead(Struct, frozen=True, omit_defaults=True, gc=False):
    """What a request sends beside its history, in tokens; `flat` is the part of it that no multiplier is for."""

    system: Tokens = 0
    tools: Tokens = 0
    injections: Tokens = 0
    messages: Tokens = 0
    flat: Tokens = 0

    @property
    def total(self) -> Tokens:
        return self.system + self.tools + self.injections + self.messages


Bound = Literal["budget", "window"]


class Compiled(AgentEvent, frozen=True, tag="compiled"):
    """The context fits; or it is that of a turn that has had an answer, which goes on all the same.

    `plan` and `note` are enough to render the same request from the log.

    `room` is what the budget leaves for the conversation, `tokens` what the plan takes of it. `folded` is how many summaries
    this plan shows, with those that they were merged from: it grows with every raise. `demand` are the stretches it would
    rather have had a summary for. `price` is what is shown at multiplier 1, `flat` the part of it that no multiplier is for.
    A `probe` is sent without knowing that it fits: its count settles that.
    """

    turn: str
    attempt: int
    plan: tuple[Stretch, ...]
    digest: str
    tokens: Tokens
    room: Tokens
    encoding: str
    window_room: Tokens | None = None
    overhead: Overhead = Overhead()
    multiplier: float = 1.0
    folded: int = 0
    demand: tuple[Stretch, ...] = ()
    note: str = ""
    probe: bool = False
    price: Tokens = 0
    flat: Tokens = 0


RefusalWhy = Literal["over_budget", "window_full", "uncovered", "invalid_plan", "no_strategy"]
"""`uncovered`: the strategy's plan loses messages; `invalid_plan`: it is wrong otherwise, or the strategy raised;
`no_strategy`: the strategy that the configuration names can not be imported here.
"""


class Refused(AgentEvent, frozen=True, tag="refused"):
    """The context does not fit, or no plan of it can be sent. `mandatory` must stay, `shortfall` is what is over;
    `compressible`: summaries can help. `missing` are the messages that the plan loses, `error` says what is wrong with it.
    """

    turn: str
    attempt: int
    why: RefusalWhy
    tokens: Tokens
    room: Tokens
    encoding: str
    binding: Bound = "budget"
    mandatory: Tokens = 0
    shortfall: Tokens = 0
    compressible: bool = False
    window_room: Tokens | None = None
    overhead: Overhead = Overhead()
    multiplier: float = 1.0
    demand: tuple[Stretch, ...] = ()
    missing: tuple[str, ...] = ()
    error: str = ""


class CalibrationSampled(AgentEvent, frozen=True, tag="calibration_sampled"):
    """One count by the provider beside what the same request was priced at, at multiplier 1.

    `prices` is the price table's version, `flat` the part of the price that no multiplier is for (images, documents),
    `digest` names the system prompt and the tools that were sent, which cost `overhead`. A rejected sample says `why`;
    one `dropped` was no count of the whole request, and nothing is learned from it.
    """

    call: str
    provider: str
    model: str
    encoding: str
    prices: int
    priced: Tokens
    overhead: Tokens
    counted: Tokens
    offset: Tokens = 0
    accepted: bool = True
    why: str = ""
    flat: Tokens = 0
    digest: str = ""
    dropped: bool = False
