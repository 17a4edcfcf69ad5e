"""`explain --slo MS` and `--baseline FILE`: what slows every request alike is seen against a reference only."""

from __future__ import annotations

import pathlib
import sys

import pytest
from program import HERE, explain, needs_root, one_error_line, tailspan

REQUESTS = 250
SLOW_S, FAST_S = 0.2, 0.05


def record(file: pathlib.Path, seconds: float) -> pathlib.Path:
    result = tailspan("run", "--out", file, "--no-explain", "--", sys.executable, HERE / "slow_for_all.py", REQUESTS, seconds)
    assert result.returncode == 0, result.stderr
    return file


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return record(tmp_path_factory.mktemp("slow") / "slow.duckdb", SLOW_S)


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return record(tmp_path_factory.mktemp("fast") / "fast.duckdb", FAST_S)


def check_fault(answer: dict, excess_ms: float) -> None:
    assert answer["verdict"] == "fault", answer
    first = answer["findings"][0]
    assert (first["cause"], first["span"], first["blame"]["kind"]) == ("sleep", "call model", "timer")
    assert first["share_of_excess"] > 0.8
    # A busy machine makes requests slower than they sleep, never faster.
    assert excess_ms * 0.95 <= answer["latency_ns"]["excess"] / 1e6 <= excess_ms * 1.05 + 40
    lines = answer["findings"] + [answer["rest"]]
    for figure in ("typical", "tail", "excess"):
        assert sum(line[f"{figure}_ns"] for line in lines) == answer["latency_ns"][figure]
    assert not any("invisible" in note for note in answer["notes"])


@needs_root
def test_without_a_reference_it_is_healthy_and_the_note_says_what_is_not_seen(slow: pathlib.Path) -> None:
    answer = explain(slow)
    assert answer["verdict"] == "healthy", answer
    assert any("--slo" in note and "--baseline" in note for note in answer["notes"])
    assert "--slo" in tailspan("explain", slow).stdout


@needs_root
def test_a_target_that_all_requests_miss(slow: pathlib.Path) -> None:
    answer = explain(slow, "--slo", "50")
    assert answer["reference"] == "slo"
    assert answer["latency_ns"]["typical"] == 50_000_000
    check_fault(answer, SLOW_S * 1000 - 50)
    assert "fault" in tailspan("explain", slow, "--slo", "50").stdout.lower()


@needs_root
def test_a_target_that_all_requests_meet(slow: pathlib.Path) -> None:
    answer = explain(slow, "--slo", "1000")
    assert answer["verdict"] == "healthy", answer
    assert answer["latency_ns"]["excess"] < 0


@needs_root
def test_an_earlier_recording_that_was_faster(slow: pathlib.Path, fast: pathlib.Path) -> None:
    answer = explain(slow, "--baseline", str(fast))
    assert answer["reference"] == "baseline"
    assert FAST_S * 1e9 <= answer["latency_ns"]["typical"] <= FAST_S * 1e9 + 20e6
    check_fault(answer, (SLOW_S - FAST_S) * 1000)


@needs_root
def test_an_earlier_recording_that_was_slower(slow: pathlib.Path, fast: pathlib.Path) -> None:
    answer = explain(fast, "--baseline", str(slow))
    assert answer["verdict"] == "healthy", answer
    assert answer["latency_ns"]["excess"] < 0


@needs_root
def test_a_recording_against_itself(slow: pathlib.Path) -> None:
    assert explain(slow, "--baseline", str(slow))["verdict"] == "healthy"


@pytest.mark.parametrize("target", ["0", "-5", "fast", "nan", "inf", "1e300", "50ms", ""])
def test_what_is_no_target(tmp_path: pathlib.Path, target: str) -> None:
    result = tailspan("explain", tmp_path / "r.duckdb", f"--slo={target}")
    assert result.returncode == 2
    assert "--slo" in result.stderr and not result.stdout


@pytest.mark.parametrize("content", [None, "no database", b"x" * 8 + b"DUCK" + b"\0" * 5000])
def test_a_baseline_that_is_no_recording(slow: pathlib.Path, tmp_path: pathlib.Path, content: str | bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.duckdb").write_bytes(content if isinstance(content, bytes) else content.encode())
    result = tailspan("explain", slow, "--baseline", tmp_path / "x.duckdb")
    assert result.returncode == 2 and not result.stdout
    one_error_line(result, "--baseline", "x.duckdb")


def test_one_reference_at_a_time(slow: pathlib.Path) -> None:
    result = tailspan("explain", slow, "--slo", "50", "--baseline", slow)
    assert result.returncode == 2 and "--slo" in result.stderr
