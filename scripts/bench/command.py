"""`rewake bench`: what was measured, each figure beside its target."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

import click
from rich.table import Table
from rich.text import Text

from rewake.scripts.bench.figures import beside_the_floor, sizes
from rewake.scripts.bench.history import after, history
from rewake.scripts.bench.idle import idle
from rewake.scripts.bench.measuring import Figure
from rewake.scripts.bench.replay import folds, plans, restarts
from rewake.scripts.bench.rivals import beside
from rewake.scripts.tables import Form, emit, formed, screen

Measured = tuple[str, Callable[[], list[Figure]]]


@click.command()
@click.option("--quick", is_flag=True, help="Only syncs, turns/s beside the floor and bytes, in about 20 s.")
@click.option("--full", is_flag=True, help="Replay and restart on 1,000,000 events, not on 100,000.")
@click.option("--peers", is_flag=True, help="Run langgraph, dbos and eventsourcing too, through `uv run --with`.")
@click.option("--slow-sync", type=click.FloatRange(min=0), default=0.0, metavar="MS", help="Each sync takes MS longer.")
@formed
def bench(form: Form, quick: bool, full: bool, peers: bool, slow_sync: float) -> None:
    """Measure rewake beside the bare parts that it is made of, in one run, and show each figure beside its target.

    Ratios are good; rates are this machine's at this moment. Files are written under the working directory, or
    REWAKE_BENCH_DIR: a disk is part of what is measured.
    """
    if peers and slow_sync:
        raise click.UsageError("--slow-sync slows rewake and the floor, not the peers: leave out one of the two.")
    if slow_sync:
        told(f"each commit of rewake and of the floor sleeps {slow_sync:g} ms more; replay and restart do not")
    pause = slow_sync / 1_000
    figures = measured([*short(pause, 3 if quick else 7), *([] if quick else long(pause, full)), *others(peers)])
    if form == "table":
        screen().print(tabled(figures))
        return
    emit(map(row, figures), form)


def short(pause: float, repeats: int) -> Iterator[Measured]:
    yield "1 agent beside the floor", lambda: beside_the_floor(1, 300, pause, repeats)
    yield "100 agents beside the floor", lambda: beside_the_floor(100, 10, pause, repeats)[:-1]
    yield "bytes", sizes


def long(pause: float, full: bool) -> Iterator[Measured]:
    yield "a long history", lambda: history(pause, 3)
    yield "replay", lambda: folds(1_000_000 if full else 100_000)
    yield "plan, 10,000 messages", lambda: plans(10_000, 20)
    yield "plan, 100,000 messages", lambda: plans(100_000, 250)
    yield "restart", lambda: restarts(1_000_000 if full else 100_000)
    yield "idle agents", idle


def others(peers: bool) -> Iterator[Measured]:
    if peers:
        yield "peers", lambda: beside(after, 3, told)


def measured(measurements: Iterable[Measured]) -> Iterator[Figure]:
    for name, measure in measurements:
        told(f"measuring: {name}")
        yield from measure()


def told(message: str) -> None:
    click.echo(message, err=True)


def row(figure: Figure) -> dict[str, object]:
    return {
        "what": figure.what,
        "value": round(figure.value, 1 if figure.unit == "%" else 3),
        "unit": figure.unit,
        "sense": figure.sense,
        "reach": figure.reach,
        "reached": figure.reached,
        "beside": figure.beside,
    }


def tabled(figures: Iterable[Figure]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("what", "measured", "to reach", "", "beside"):
        table.add_column(name, justify="right" if name in ("measured", "to reach") else "left")
    for figure in figures:
        sign = "≤" if figure.sense == "at_most" else "≥"
        reach = "" if figure.reach is None else f"{sign} {number(figure.reach)} {figure.unit}"
        verdict = {None: Text(""), True: Text("yes", "green"), False: Text("no", "red")}[figure.reached]
        table.add_row(figure.what, f"{number(figure.value)} {figure.unit}", reach, verdict, figure.beside)
    return table


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 or value == int(value) else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(bench())
