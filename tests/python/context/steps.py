"""Steps whose length is unique to their span, and what the thread published while they ran.

A step is told its span's label by the code that calls it, never by a ContextVar: that label is the truth. What the
thread published is read from its TLS record by the reader in `published.py`, at the start and at the end of the step.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass

import published

LENGTHS = 1009  # prime: spans this close together never share a length
SHORTEST_NS = 150_000
STRIDE_NS = 1_000


@dataclass
class Step:
    label: str
    thread: int
    start_mono_ns: int
    end_mono_ns: int
    start_unix_ns: int
    at_start: bytes | None
    at_end: bytes | None
    kind: str


log: list[Step] = []
_numbers = itertools.count()


def new_label() -> str:
    return f"s{next(_numbers)}"


def length_ns(label: str) -> int:
    return SHORTEST_NS + (int(label[1:]) * 613 % LENGTHS) * STRIDE_NS


def step(label: str) -> None:
    """One step of `label`'s own work: every other span computes, the rest block the thread."""
    want_ns = length_ns(label)
    sleeps = int(label[1:]) % 2 == 0
    at_start = published.span_id()
    start_unix_ns = time.time_ns()
    start = time.monotonic_ns()
    if sleeps:
        time.sleep(want_ns / 1e9)
    else:
        while time.monotonic_ns() - start < want_ns:
            pass
    end = time.monotonic_ns()
    log.append(
        Step(
            label,
            threading.get_native_id(),
            start,
            end,
            start_unix_ns,
            at_start,
            published.span_id(),
            "sleep" if sleeps else "busy",
        )
    )
