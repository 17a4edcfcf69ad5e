"""The critical path of real asyncio requests against what they themselves know of it (paths.py): what they asked for, and
how far the machine that day kept them from it, by their own clocks."""

from __future__ import annotations

import collections
import json
import pathlib
import sys

import pytest
from program import HERE, ROOT, explain, needs_root, tailspan

REPEAT = 2
TOLERANCE = 0.05


class Measured:
    """Sums over the requests of one shape, seconds."""

    def __init__(self) -> None:
        self.requests = 0
        self.seconds = 0.0  # as the application says
        self.worked = 0.0
        self.duration = 0.0  # as the ledger says
        self.truth: dict[tuple[str, str], float] = collections.defaultdict(float)
        self.ledger: dict[tuple[str, str], float] = collections.defaultdict(float)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Measured]:
    folder = tmp_path_factory.mktemp("paths")
    first = ["nice", "-n", "-15"] if ROOT else []  # before what else this machine does
    recorded = tailspan("run", "--out", folder / "r.duckdb", "--no-explain", "--", *first, sys.executable,
                        HERE / "paths.py", REPEAT, folder / "truth.jsonl")
    assert recorded.returncode == 0, recorded.stderr
    out: dict[str, Measured] = collections.defaultdict(Measured)
    for line in (folder / "truth.jsonl").read_text().splitlines():
        request = json.loads(line)
        m = out[request["shape"]]
        m.requests += 1
        m.seconds += request["seconds"]
        m.worked += request["worked"]
        for kind in ("asked", "slept", "computed"):
            for span, seconds in request[kind].items():
                m.truth[span, kind] += seconds
        answer = explain(folder / "r.duckdb", "--trace", request["trace"])
        assert answer["duration_ns"] == request["duration_ns"]
        m.duration += answer["duration_ns"] / 1e9
        for piece in answer["ledger"]:
            kind = {"sleep": "slept", "on_cpu": "computed"}.get(piece["cause"], piece["cause"])
            m.ledger[piece["span"], kind] += (piece["end_ns"] - piece["start_ns"]) / 1e9
    return out


@needs_root
@pytest.mark.parametrize("shape", ["as_completed", "as_completed_slow_consumer", "slow_consumer", "slow_consumer_of_a_task",
                                   "left_early", "left_early_and_closed", "background_task", "background_job"])
def test_the_path_is_the_one_that_the_request_took(measured: dict[str, Measured], shape: str) -> None:
    m = measured[shape]
    if m.requests < REPEAT:
        pytest.skip(f"the machine was too busy: {m.requests} of {REPEAT} requests ran as they are described")
    table = {"truth": dict(m.truth), "ledger": dict(m.ledger)}
    asked, computed = (sum(seconds for (_, kind), seconds in m.truth.items() if kind == wanted)
                       for wanted in ("asked", "computed"))
    # What the ledger says of each span. What the machine took from it is there as other causes.
    delayed: dict[str, float] = collections.defaultdict(float)
    for (span, kind), seconds in m.ledger.items():
        if kind not in ("slept", "computed", "unexplained"):
            delayed[span] += seconds
    between = m.worked - computed  # the loop's and the tracer's own work, which no step's clock covers
    for (span, kind), seconds in m.truth.items():
        if kind == "computed":
            assert seconds * (1 - TOLERANCE) <= m.ledger[span, kind] <= (seconds + between) * (1 + TOLERANCE), (span, table)
        elif kind == "slept":
            # A busy machine lets a sleeper begin late, which shortens its sleep, and go on late, which is no sleep.
            least = m.truth[span, "asked"] * (1 - TOLERANCE) - delayed[span]
            assert least <= m.ledger[span, kind] <= seconds * (1 + TOLERANCE), (span, table)
    assert sum(seconds for (_, kind), seconds in m.ledger.items() if kind == "computed") <= m.worked * (1 + TOLERANCE), table
    # Delays are no more than the request was late by its own clock.
    assert sum(delayed.values()) <= m.seconds - asked - computed + TOLERANCE * m.duration, table
    off_path = {span for span, _ in m.ledger} - {span for span, _ in m.truth}
    strayed = sum(seconds for (span, _), seconds in m.ledger.items() if span in off_path)
    assert strayed <= TOLERANCE * m.duration, table
    unexplained = sum(seconds for (_, kind), seconds in m.ledger.items() if kind == "unexplained")
    assert unexplained <= TOLERANCE * m.duration, table
