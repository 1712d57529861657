"""What a thousand agents cost that do nothing."""

from __future__ import annotations

import gc
import os
import time

from rewake.actors import AgentConfig, Runtime
from rewake.scripts.bench.measuring import Figure, folder
from rewake.scripts.bench.turns import Instant

MIB = 1024 * 1024


def resident() -> int:
    """The bytes of memory that this process has; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def idle(agents: int = 1_000, watched: float = 2.0) -> list[Figure]:
    """Memory over the empty runtime, writes, and the part of one CPU that they take, once they have started."""
    with folder() as place:
        with Runtime(os.path.join(place, "empty.db"), provider=Instant()):
            gc.collect()
            empty = resident()
        configs = [AgentConfig(name=f"agent-{number:04}", model="instant") for number in range(agents)]
        with Runtime(os.path.join(place, "idle.db"), provider=Instant(), agents=configs) as rt:
            rt.run_until_idle()
            gc.collect()
            memory = resident() - empty
            commits, cpu = rt.log.commits, time.process_time()
            time.sleep(watched)
            commits, cpu = rt.log.commits - commits, time.process_time() - cpu
    what = f"{agents:,} idle agents"
    return [
        Figure(f"{what}: memory over the empty runtime", memory / MIB, "MiB", 100),
        Figure(f"{what}: commits in {watched:g} s", commits, "commits", 0),
        Figure(f"{what}: CPU", cpu / watched * 100, "% of one", 1),
    ]
