"""What a case is: a service, a load, a fault, and the truth about it.

A case is one file in lab/cases that defines CASE. The runner knows services,
loads and faults only through these types.
"""

from __future__ import annotations

import importlib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import paths
from .network import Link


@dataclass(frozen=True)
class Request:
    """One request of a plan."""

    path: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Surroundings:
    """What a fault may touch: this run's link, processes and files."""

    link: Link
    pids: dict[str, int]
    data: Path
    start_mono_ns: int
    duration_s: float


class Fault:
    """No fault. start() returns at once, stop() heals and may be called twice."""

    def __init__(self) -> None:
        self.evidence: dict[str, Any] = {}

    def start(self, around: Surroundings) -> None:
        """Called just before the load starts."""

    def stop(self) -> None:
        """Called after the load, or when the run fails."""


class WindowFault(Fault):
    """A fault that comes and goes: on() and off() from a thread of its own, in
    windows of `length_s`, one each `period_s` with a random phase."""

    def __init__(self, period_s: float, length_s: float) -> None:
        super().__init__()
        self._period_s, self._length_s = period_s, length_s
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self.windows: list[tuple[int, int]] = []

    def on(self) -> None:
        raise NotImplementedError

    def off(self) -> None:
        raise NotImplementedError

    def start(self, around: Surroundings) -> None:
        self._thread = threading.Thread(target=self._run, args=(around,), daemon=True)
        self._thread.start()

    def _run(self, around: Surroundings) -> None:
        rng = random.Random(around.start_mono_ns)
        try:
            for n in range(int(around.duration_s / self._period_s)):
                at_s = (n + 0.8 * rng.random()) * self._period_s
                wait_s = around.start_mono_ns * 1e-9 + at_s - time.monotonic()
                if self._ended.wait(max(0.0, wait_s)):
                    return
                begin = time.monotonic_ns()
                self.on()
                stopped = self._ended.wait(self._length_s)
                self.off()
                self.windows.append((begin, time.monotonic_ns()))
                if stopped:
                    return
        except (OSError, RuntimeError) as error:
            self._error = error

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self.evidence["windows"] = self.windows
        if self._error is not None:
            raise self._error


@dataclass(frozen=True)
class Accept:
    """The answers that count as right, written before the first scored run.

    Spans are names without a tracer's own suffix. A blame matches if its kind
    and a part of its name or detail match one pair; part "" matches any.
    """

    verdict: str
    causes: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    blames: tuple[tuple[str, str], ...] = ()


Row = dict[str, Any]
Workload = Callable[[random.Random, int], list[Request]]
Hit = Callable[[Row, list[Row], dict[str, Any]], bool]


def no_hits(row: Row, rows: list[Row], evidence: dict[str, Any]) -> bool:
    """For healthy cases."""
    return False


@dataclass(frozen=True)
class Case:
    """One scored situation. `hit(row, rows, evidence)` says from the lab's own
    truth whether the fault struck a request; rows carry the client's times and,
    under `service`, the service's own log of that request.
    `rows` are all operations'; only those of `operation` are judged."""

    name: str
    summary: str
    rate_rps: float
    workload: Workload
    accept: Accept
    requests: int = 2000
    operation: str = "POST /ask"
    service: str = "rag"
    env: dict[str, str] = field(default_factory=dict)
    fault: Callable[[], Fault] = Fault
    hit: Hit = no_hits
    hit_share: tuple[float, float] | None = None


def names() -> list[str]:
    """All cases, by file."""
    files = (paths.LAB / "cases").glob("[!_]*.py")
    return sorted(f.stem.replace("_", "-") for f in files)


def load(name: str) -> Case:
    """Raises KeyError for an unknown name."""
    if name not in names():
        raise KeyError(name)
    return importlib.import_module("cases." + name.replace("-", "_")).CASE
