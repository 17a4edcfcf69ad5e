"""Who used the machine's CPUs during the load: the service, or somebody else."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def machine_s() -> tuple[float, float]:
    """(busy, all) core-seconds since boot."""
    ticks = [int(t) for t in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / _TICKS_PER_S, sum(ticks) / _TICKS_PER_S


def tree_s(*roots: int) -> float:
    """Core-seconds used by processes and their children, the reaped ones too."""
    children: dict[int, list[int]] = defaultdict(list)
    used: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        children[int(fields[1])].append(pid)
        used[pid] = sum(int(f) for f in fields[11:15]) / _TICKS_PER_S
    total, queue = 0.0, list(roots)
    while queue:
        pid = queue.pop()
        total += used.get(pid, 0.0)
        queue.extend(children[pid])
    return total


class Meter:
    """Shares of the machine between its making and read()."""

    def __init__(self, *roots: int) -> None:
        self._roots = roots
        self._start = (*machine_s(), tree_s(*roots))

    def read(self) -> dict[str, float]:
        """`ours`: the service, its recorder and the client; `others`: the rest."""
        busy_s, all_s = machine_s()
        all_s = max(all_s - self._start[1], 1 / _TICKS_PER_S)
        ours_s = tree_s(*self._roots) - self._start[2]
        others_s = busy_s - self._start[0] - ours_s
        return {"ours": round(ours_s / all_s, 3), "others": round(max(0.0, others_s) / all_s, 3)}
