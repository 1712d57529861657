"""What the scripted provider answers to compression requests by itself: the first words of everything."""

from __future__ import annotations

from rewake.actors.providers.base import Request
from rewake.events.messages import AnyBlock, Text, ToolResult

SECTIONS = ("Goal", "Progress", "Next Steps", "Critical Context")
"""What a checkpoint's summary is asked to have; the extract has them when the request names them all."""

SHORTEST = 8
LONGEST = 1_200


def extract(request: Request) -> str:
    """The beginning of each source, about a sixth of its text; never empty, always of whole sentences."""
    sources = [plain(block) for message in request.messages for block in message.blocks]
    begun = [begin(source) for source in sources if len(source) >= SHORTEST]
    return sectioned(begun) if wants_sections(request) else " ".join(begun) or "Nothing."


def plain(block: AnyBlock) -> str:
    """A block's text on one line, without marks that something could be left open by."""
    match block:
        case Text(text) | ToolResult(_, text):
            return " ".join(text.replace("`", "").split())
        case _:
            return ""


def begin(text: str) -> str:
    """The first sixth or so of a text, of whole words where it has any, with a full stop."""
    cut = text[: min(max(len(text) // 6, 1), LONGEST)]
    whole = cut if text[len(cut) :].startswith(" ") else cut.rpartition(" ")[0]
    return (whole or cut).rstrip(" .,;:!?") + "."


def wants_sections(request: Request) -> bool:
    text = request.system + "\n".join(plain(block) for message in request.messages for block in message.blocks)
    return all(section in text for section in SECTIONS)


def sectioned(begun: list[str]) -> str:
    """The extract under the headings of a checkpoint, what came first under the first."""
    parts = [begun[index : index + 1] for index in range(len(SECTIONS) - 1)] + [begun[len(SECTIONS) - 1 :]]
    return "\n\n".join(f"## {name}\n{' '.join(part) or 'None.'}" for name, part in zip(SECTIONS, parts, strict=True))
