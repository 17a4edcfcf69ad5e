"""`explain --from T --to T` and `--trace`: which requests are meant, and that each is whole."""

from __future__ import annotations

import pathlib
import time
import uuid
from typing import Callable

import pytest

from program import a_command_that_waits, explain, langsmith_run, send, tailspan

FIRST, SECOND = 7001, 7002  # two requests in one trace


def moment(seconds: int) -> str:
    return f"2026-11-30T18:00:{seconds:02}Z"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Twenty requests from second 5 to 15, each with a child from 9 to 14; and a trace with two requests."""
    file = tmp_path_factory.mktemp("window") / "r.duckdb"
    runs = [langsmith_run(1000 + i, "ask", start_time=moment(5), end_time=moment(15)) for i in range(20)]
    runs += [langsmith_run(2000 + i, "inner", 1000 + i, start_time=moment(9), end_time=moment(14)) for i in range(20)]
    runs.append(langsmith_run(FIRST, "first", start_time=moment(30), end_time=moment(31)))
    second = langsmith_run(SECOND, "second", start_time=moment(32), end_time=moment(37))
    runs.append(second | {"trace_id": str(uuid.UUID(int=FIRST))})
    with a_command_that_waits(file) as (process, port):
        assert send(port, "POST", "/runs/batch", {"post": runs, "patch": []}) == 202
        time.sleep(2)
        process.kill()
    return file


def test_a_request_that_ends_after_the_window_is_whole(recording: pathlib.Path) -> None:
    ledger = explain(recording, "--from", moment(4), "--to", moment(8), "--trace", uuid.UUID(int=1003))
    assert ledger["duration_ns"] == 10_000_000_000
    inner = sum(piece["end_ns"] - piece["start_ns"] for piece in ledger["ledger"] if piece["span"] == "inner")
    assert inner == 5_000_000_000


def test_a_part_of_a_request_that_began_before_is_no_request(recording: pathlib.Path) -> None:
    result = tailspan("explain", recording, "--from", moment(8), "--to", moment(20))
    assert result.returncode == 3, "no data, and no failure"
    assert "no request that has ended began in this window; the recording has 22 outside it" in " ".join(result.stdout.split())
    operations = {one["operation"] for one in explain(recording)["operations"]}
    assert operations == {"ask", "first", "second"}


def test_a_recording_that_was_cut_off_has_an_end(recording: pathlib.Path) -> None:
    source = explain(recording)["source"]
    assert 0 < source["to_unix_ns"] - source["from_unix_ns"] < 60e9


@pytest.mark.parametrize("time_text", ["nan", "inf", "1e30", "9999-01-01T00:00:00Z", "yesterday"])
def test_what_is_no_time(recording: pathlib.Path, time_text: str) -> None:
    result = tailspan("explain", recording, "--from", time_text)
    assert result.returncode == 2 and not result.stdout and time_text in result.stderr


def test_a_window_that_ends_before_it_begins(recording: pathlib.Path) -> None:
    result = tailspan("explain", recording, "--from", moment(8), "--to", moment(8))
    assert result.returncode == 2 and not result.stdout and "--from must be before --to" in result.stderr


def test_a_trace_of_several_requests(recording: pathlib.Path) -> None:
    trace = uuid.UUID(int=FIRST)
    result = tailspan("explain", recording, "--trace", trace)
    assert "2 requests" in result.stderr
    longest = explain(recording, "--trace", trace)
    assert (longest["root"], longest["duration_ns"]) == ("second", 5_000_000_000)
    assert explain(recording, "--trace", f"{trace.hex.upper()}/{longest['root_span_id']}") == longest
    others = result.stderr.split("--trace: ")[1].split()[0]
    assert explain(recording, "--trace", others)["root"] == "first", "as it was told"
    assert tailspan("explain", recording, "--trace", f"{trace}/0000000000000001").returncode == 1
    assert tailspan("explain", recording, "--trace", f"{trace}/xyz").returncode == 2


@pytest.mark.parametrize("spelt", [str, lambda run: run.hex, lambda run: str(run).upper()])
def test_any_run_names_its_request(recording: pathlib.Path, spelt: Callable[[uuid.UUID], str]) -> None:
    """As people copy it from LangSmith's pages: a run below the root, with or without dashes."""
    answer = explain(recording, "--trace", spelt(uuid.UUID(int=2003)))
    assert answer["root"] == "ask" and answer["trace_id"] == uuid.UUID(int=1003).hex


def test_an_operation_outside_the_window_is_said_to_be_there(recording: pathlib.Path) -> None:
    result = tailspan("explain", recording, "--operation", "first", "--to", moment(20))
    assert result.returncode == 1
    assert "between --from and --to" in result.stderr
