"""What a command may end on, beside the errors of the log and of the runtime."""

from __future__ import annotations

from rewake.events import RewakeError


class ConfigError(RewakeError):
    """A configuration file that can not be: where in it, and why."""

    path: str
    line: int | None
    key: str

    def __init__(self, path: str, line: int | None, key: str, why: str) -> None:
        place = path if line is None else f"{path}:{line}"
        super().__init__(f"{place}: {key}: {why}" if key else f"{place}: {why}", path=path, line=line, key=key)


class Divergence(RewakeError):
    """Today's code would decide something else than what was recorded."""


class Failed(RewakeError):
    """The command did what it was asked, and the answer is no; `exit_code` says which no."""

    exit_code: int

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message, exit_code=exit_code)
