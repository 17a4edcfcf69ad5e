"""The critical path of real asyncio requests against what they themselves know of it (paths.py)."""

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
        for kind in ("asked", "slept", "computed"):
            for span, seconds in request[kind].items():
                m.truth[span, kind] += seconds
        answer = explain(folder / "r.duckdb", "--trace", request["trace"])
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
    assert m.duration == pytest.approx(m.seconds, rel=TOLERANCE)
    for (span, kind), seconds in m.truth.items():
        if kind == "computed":
            assert m.ledger[span, kind] == pytest.approx(seconds, rel=TOLERANCE), (span, table)
        elif kind == "slept":  # on a busy machine a sleeper goes on later than it asked for; that is no sleep
            least = m.truth[span, "asked"] * (1 - TOLERANCE)
            assert least <= m.ledger[span, kind] <= seconds * (1 + TOLERANCE), (span, table)
    off_path = {span for span, _ in m.ledger} - {span for span, _ in m.truth}
    strayed = sum(seconds for (span, _), seconds in m.ledger.items() if span in off_path)
    assert strayed <= TOLERANCE * m.duration, table
    unexplained = sum(seconds for (_, kind), seconds in m.ledger.items() if kind == "unexplained")
    assert unexplained <= TOLERANCE * m.duration, table
