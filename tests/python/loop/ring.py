"""What the tests share: spans, the program's own log, and the ring's records as the real reader sees them."""
from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections import defaultdict
from typing import Any

from tailspan import _context as ctx

DUMP = os.environ["TAILSPAN_RING_DUMP"]  # the built loop_ring_dump
NO_SPAN = "0" * 16

_ids = iter(range(1, 1 << 60))


class Span:
    """`with Span("name"):` one span of the test's own; its moments are logged by the program's clock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = next(_ids)
        self.id = f"{self.number:016x}"

    def __enter__(self) -> Span:
        self.start = time.monotonic_ns()
        self.cell = ctx.Cell(b"\x07" * 16, self.number.to_bytes(8, "big"), None, ctx.current_cell())
        ctx.enter(self.cell)
        return self

    def __exit__(self, *_: object) -> None:
        ctx.leave(self.cell)
        self.end = time.monotonic_ns()


class Recording:
    """`with Recording() as r:` the ring of a process (this one by default) from here to the end of the block."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid or os.getpid()

    def __enter__(self) -> Recording:
        self._dump = subprocess.Popen(
            [DUMP, str(self.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._dump.stdout is not None
        line = self._dump.stdout.readline()
        assert line == "ready\n", line
        return self

    def __exit__(self, *_: object) -> None:
        out, _ = self._dump.communicate("")
        self.raw: dict[str, Any] = json.loads(out)
        self.steps: list[dict[str, Any]] = sorted(self.raw["steps"], key=lambda s: s["start"])
        self.changes: list[dict[str, Any]] = self.raw["changes"]
        self.polls: list[dict[str, Any]] = self.raw["polls"]
        self.sockets: list[dict[str, Any]] = self.raw["sockets"]
        self.gc: list[dict[str, Any]] = self.raw["gc"]
        self.sites: dict[int, str] = dict(map(tuple, self.raw["sites"]))
        self.loss: dict[str, int] = self.raw["loss"]
        self.by_id = {s["id"]: s for s in self.steps}
        for step in self.steps:
            step["site_name"] = self.sites.get(step["site"], "")
        self._lines = self._timelines()

    def steps_of(self, span: Span, *kinds: str) -> list[dict[str, Any]]:
        return [s for s in self.steps if s["span"] == span.id and (not kinds or s["kind"] in kinds)]

    def task_of(self, span: Span) -> list[dict[str, Any]]:
        """The steps of the carrier in which the span was entered, in order: back to its first step, on to the next."""
        entered = next(c for c in self.changes if c["kind"] == "enter" and c["span"] == span.id)
        home = self.by_id[entered["step"]]
        own = [s for s in self.steps if s["task"] == home["task"] and s["tid"] == home["tid"]]
        firsts = [s["start"] for s in own if s["kind"] == "new_task"]
        begin = max((t for t in firsts if t <= home["start"]), default=0)
        end = min((t for t in firsts if t > home["start"]), default=1 << 63)
        return [s for s in own if begin <= s["start"] < end]

    def step_after(self, span: Span, moment_ns: int) -> dict[str, Any]:
        """The first step of the span's carrier that began after the moment: the one that ended its wait."""
        return next(s for s in self.task_of(span) if s["start"] >= moment_ns)

    def span_at(self, tid: int, moment_ns: int) -> str:
        """The thread's span at a moment, from the records alone."""
        span = NO_SPAN
        for at, _, value in self._lines[tid]:
            if at > moment_ns:
                break
            span = value
        return span

    def _timelines(self) -> dict[int, list[tuple[int, int, str]]]:
        lines: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
        for change in self.changes:
            lines[change["tid"]].append((change["at"], 1, change["span"]))
        for step in self.steps:  # a step's record stands for two changes
            lines[step["tid"]].append((step["start"], 0, step["span"]))
            lines[step["tid"]].append((step["end"], 2, step["outer"]))
        for line in lines.values():
            line.sort()
        return lines


def tid() -> int:
    return threading.get_native_id()


def busy(ms: float) -> None:
    """Work of a known length: holds the loop."""
    end = time.monotonic_ns() + int(ms * 1e6)
    while time.monotonic_ns() < end:
        pass
