"""An aggregate of eventsourcing on SQLite: a turn saves what was pushed and ordered, then what was answered.

Arguments: a directory, ignored, turns. Prints turns per second.
"""

# pyright: basic, reportMissingImports=false
import os
import sys
import time

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

SAID = "The build failed because the handler expects a mapping and got a list; I read the file first. " * 2


class Agent(Aggregate):
    @event("Started")
    def __init__(self) -> None:
        self.count = 0
        self.last = ""

    @event("Happened")
    def happen(self, what: str, text: str) -> None:
        self.count += 1
        self.last = text


def turn(application: Application, agent: Agent) -> None:
    for what, text in (("pushed", SAID), ("woken", ""), ("started", ""), ("compiled", ""), ("undo", ""), ("asked", "")):
        agent.happen(what=what, text=text)
    application.save(agent)
    for what, text in (("answered", SAID), ("said", SAID), ("sampled", ""), ("used", ""), ("completed", "")):
        agent.happen(what=what, text=text)
    application.save(agent)


def main(place: str, turns: int) -> None:
    name = os.path.join(place, "eventsourcing.db")
    application = Application(env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": name})
    agent = Agent()
    turn(application, agent)
    begun = time.perf_counter()
    for _ in range(turns):
        turn(application, agent)
    print(turns / (time.perf_counter() - begun))
    application.close()


main(sys.argv[1], int(sys.argv[3]))
