"""A workflow of two steps on dbos with SQLite, the call and the reply. Arguments: a directory, ignored, workflows.

Prints workflows per second.
"""

# pyright: basic, reportMissingImports=false
import os
import sys
import time

from dbos import DBOS

SAID = "The build failed because the handler expects a mapping and got a list; I read the file first. " * 2
url = f"sqlite:///{os.path.join(sys.argv[1], 'dbos.db')}"
DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR", "enable_otlp": False})


@DBOS.step()
def call(said: str) -> str:
    return said[::-1]


@DBOS.step()
def reply(said: str) -> str:
    return said[::-1]


@DBOS.workflow()
def turn(said: str) -> str:
    return reply(call(said))


DBOS.launch()
for _ in range(5):
    turn(SAID)
turns = int(sys.argv[3])
begun = time.perf_counter()
for _ in range(turns):
    turn(SAID)
print(turns / (time.perf_counter() - begun))
DBOS.destroy()
