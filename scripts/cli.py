"""The `rewake` command: its group, and what becomes of errors.

Exit codes: 0 fine, 1 failed, 2 usage (a malformed configuration too), 3 divergence found, 4 log in use, 5 log corrupt.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version

import click

from rewake.events import ExportCorrupt, LogCorrupt, LogInUse, RewakeError
from rewake.scripts.errors import ConfigError, Divergence, Failed

COMMANDS = {
    "agents": "reading",
    "backup": "exchange:backup_",
    "bench": "bench.command",
    "demo": "demo",
    "diff": "comparing",
    "export": "exchange",
    "import": "exchange:import_",
    "owed": "reading",
    "query": "querying",
    "redecide": "redeciding",
    "replay": "replaying",
    "run": "running",
    "show": "reading",
    "tables": "querying",
    "tail": "tailing",
    "verify": "reading",
    "what-if": "redeciding:what_if",
    "why": "why",
}
"""Where each command is, and its name there if that is another: its module is imported when it is asked for."""

FAILED, USAGE, DIVERGED, IN_USE, CORRUPT = 1, 2, 3, 4, 5


class Plain(click.Command):
    """An error that is ours is one line on stderr and its exit code, never a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except RewakeError as error:
            told(str(error))
            ctx.exit(code(error))
        except BrokenPipeError:
            raise
        except OSError as error:
            told(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
            ctx.exit(FAILED)


class Commands(Plain, click.Group):
    """The commands, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        return getattr(import_module(f"rewake.scripts.{module}"), name or cmd_name.replace("-", "_"))


def code(error: RewakeError) -> int:
    """The exit code that an error stands for."""
    match error:
        case Failed():
            return error.exit_code
        case ConfigError():
            return USAGE
        case Divergence():
            return DIVERGED
        case LogInUse():
            return IN_USE
        case LogCorrupt() | ExportCorrupt():
            return CORRUPT
        case _:
            return FAILED


def told(message: str) -> None:
    """One line on stderr, whatever the message has in it."""
    click.echo("rewake: " + " ".join(message.split()), err=True)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(version("rewake"), prog_name="rewake")
def main() -> None:
    """Run agents from an event log, and read that log.

    Commands that read take LOG first, or the log that REWAKE_LOG names; they open it read-only, also while a runtime
    writes it. Only the process that runs the agents can change anything.

    \b
    Exit codes: 0 fine, 1 failed, 2 usage, 3 divergence found, 4 log in use, 5 log corrupt.
    """


if __name__ == "__main__":
    sys.exit(main())
