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


def own_s(pid: int) -> float:
    """Core-seconds of one process and its threads, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def parent_of(pid: int) -> int:
    """The process that started it."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def peak_rss_mb(pid: int) -> float:
    """The largest resident memory of a process so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


class Parts:
    """Core-seconds of the parts of a run between its making and read(): the app,
    the whole service, and the recorder, 0 when nothing is recorded. The scheduler's
    own sums: what probes add to a switch stands with the thread that switches."""

    def __init__(self, server: int, app: int) -> None:
        self._serve, self._app = parent_of(app), app
        self._recorder = server if server != self._serve else None
        self._start = self._now()

    def _now(self) -> dict[str, float]:
        return {"app": tree_s(self._app), "service": tree_s(self._serve),
                "recorder": own_s(self._recorder) if self._recorder else 0.0}

    def read(self) -> dict[str, float]:
        """By part; `recorder_peak_rss_mb` too when there is one."""
        used = {part: round(s - self._start[part], 3) for part, s in self._now().items()}
        if self._recorder:
            used["recorder_peak_rss_mb"] = round(peak_rss_mb(self._recorder), 1)
        return used


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
