"""The process that the demo kills: `python -m rewake.scripts.demo_child LOG first|second`."""

from __future__ import annotations

import sys
import time

from rewake.actors import AgentConfig, Runtime
from rewake.actors.providers import ScriptedProvider, slow
from rewake.actors.providers.base import Request, text_of
from rewake.actors.providers.extract import extract
from rewake.actors.providers.script import Item
from rewake.events import Tokens

NIGHTS = 10
MAX_TOKENS: Tokens = 400
ROOM: Tokens = 700
"""What the cut budget leaves for the conversation."""

NEVER, SOON = 60.0, 0.4
"""Seconds that a summary takes: in the first life it never comes, in the second it does."""

QUESTIONS = (
    ("cli", "grace", "Which night had the best seeing?"),
    ("mail", "edwin", "Do we keep the dome closed tomorrow?"),
)

ADA = AgentConfig(
    name="ada",
    model="scripted",
    system="You keep the log book of an observatory.",
    max_tokens=MAX_TOKENS,
    target_chunk_tokens=250,
)


def note(night: int) -> str:
    """What was observed one night, about 110 tokens of it."""
    return (
        f"Night {night}: the dome opened at 21:{night:02} and closed at 04:{50 - night}. Seeing was {0.9 + night / 10:.1f} "
        f"arc seconds for most of the run, worse while the wind came from the north-east at {3 + night} metres a second. "
        f"We took {20 + 3 * night} frames of the comet and {7 * night} of the variable star, threw away {night + 2} with "
        "satellite trails, and refilled the cold trap twice. The guide camera lost its star once; somebody will look at "
        "its cable in the morning. Please enter this in the log book and tell me what is still open."
    )


def answer(request: Request) -> Item:
    """What the model says: to one note its entry, to several questions all of the answers in one."""
    asked: list[str] = []
    for message in reversed(request.messages):
        if message.role == "assistant":
            break
        asked.insert(0, text_of(message.blocks))
    questions = [said for _, _, said in QUESTIONS if any(said in text for text in asked)]
    if not questions:
        return "Entered. Still open: the cable of the guide camera, and whether the cold trap leaks."
    said = {QUESTIONS[0][2]: "Night 1, at 1.0 arc seconds.", QUESTIONS[1][2]: "Yes: the wind is forecast to rise."}
    return slow(" ".join(said[question] for question in questions), 0.2)


def provider(seconds: float) -> ScriptedProvider:
    return ScriptedProvider(answer, summarize=lambda request: slow(extract(request), seconds))


def first(path: str) -> None:
    """A history, a cut budget, two wakes; then it waits for its end."""
    with Runtime(path, provider=provider(NEVER), agents=[ADA]) as runtime:
        for night in range(1, NIGHTS + 1):
            runtime.result(runtime.push("ada", note(night), author="grace"), timeout=10)
        runtime.configure("ada", context_budget_tokens=ROOM + MAX_TOKENS, immediate=True, allow_infeasible=True)
        for channel, author, said in QUESTIONS:
            runtime.push("ada", said, channel=channel, author=author)
        time.sleep(NEVER)


def second(path: str) -> None:
    """Started on the same log, with nothing to do but what is owed."""
    with Runtime(path, provider=provider(SOON), agents=[ADA]) as runtime:
        runtime.run_until_idle(timeout=12)


if __name__ == "__main__":
    {"first": first, "second": second}[sys.argv[2]](sys.argv[1])
