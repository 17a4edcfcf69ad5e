"""The answer about real programs: its contract, what it explains, and what lost or missing signals do to it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from program import HERE, TAILSPAN, explain, needs_root, query, tailspan


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("recording") / "service.duckdb"
    result = tailspan("run", "--out", file, "--no-explain", "--", sys.executable, HERE / "service.py", 260)
    assert result.returncode == 0, result.stderr
    return file


def test_the_answer_keeps_the_contract(recording: pathlib.Path) -> None:
    answer = explain(recording)
    assert answer["schema"] == "tailspan.explanation/1"
    assert answer["operation"] == "ask" and answer["requests"] == 260 and answer["errors"] == 0
    lines = answer["findings"] + [answer["rest"]]
    for figure in ("typical", "tail", "excess"):
        assert sum(line[f"{figure}_ns"] for line in lines) == answer["latency_ns"][figure]
    assert answer["verdict"] in ("fault", "healthy", "insufficient") and answer["verdict_rule"]
    for finding in answer["findings"]:
        assert finding["blame"]["kind"] in "span thread process peer file cgroup device timer self none".split()


@needs_root
def test_the_tail_is_explained_and_the_ledger_is_whole(recording: pathlib.Path) -> None:
    answer = explain(recording)
    assert answer["unexplained_share"] < 0.05
    assert answer["join"]["thread_context"] > 0.9
    trace = answer["findings"][0]["exemplars"][0]
    ledger = explain(recording, "--trace", trace)
    assert ledger["schema"] == "tailspan.trace/1"
    at_ns = 0
    for piece in ledger["ledger"]:
        assert piece["start_ns"] == at_ns < piece["end_ns"]
        at_ns = piece["end_ns"]
    assert at_ns == ledger["duration_ns"]


@needs_root
def test_waits_for_the_gil_are_blamed_on_its_holder(recording: pathlib.Path) -> None:
    """Every tenth request computes 60 ms in a thread meanwhile: others' waits for the GIL name that span."""
    found = [f for f in explain(recording, "--quantile", "0.9")["findings"] if f["cause"] == "gil"]
    assert found and found[0]["blame"]["kind"] == "span" and found[0]["blame"]["name"] == "chunk"


def test_unknown_trace_and_operation(recording: pathlib.Path) -> None:
    assert tailspan("explain", recording, "--trace", "00" * 16).returncode == 1
    assert tailspan("explain", recording, "--trace", "xyz").returncode == 2
    assert tailspan("explain", recording, "--operation", "none such").returncode == 1


@needs_root
def test_dropped_records_lower_what_is_explained(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "dropped.duckdb"
    tailspan("run", "--out", file, "--no-explain", "--drop-per-mille", 100, "--", sys.executable, HERE / "service.py", 260)
    whole, dropped = explain(recording), explain(file)
    assert dropped["unexplained_share"] > whole["unexplained_share"] + 0.01
    assert dropped["loss"]["kernel_drop_on_purpose"] > 0


@needs_root
@pytest.mark.long
def test_lost_loop_records_lower_what_is_explained(recording: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "dropped.duckdb"
    tailspan("run", "--out", file, "--no-explain", "--drop-ring-per-mille", 100, "--", sys.executable, HERE / "service.py", 260)
    # Over nearly all requests: the few slowest are mostly those that compute in a worker thread, whose time needs few of
    # the loop's records, and which of those few requests lost one is chance.
    whole, dropped = explain(recording, "--quantile", "0.01"), explain(file, "--quantile", "0.01")
    assert dropped["unexplained_share"] > whole["unexplained_share"] + 0.01
    assert dropped["loss"]["loop_ring_drop_on_purpose"] > 0
    # `explain` has stored the ledgers of all requests.
    lost = "SELECT count(*) FROM ledger WHERE cause = 'unexplained' AND evidence LIKE '%of the loop lost here'"
    assert int(query(file, lost)) > int(query(recording, lost))


def pieces_of(recording: pathlib.Path, trace: str) -> list[dict]:
    return explain(recording, "--trace", trace)["ledger"]


def slowest_traces(recording: pathlib.Path) -> set[str]:
    return {trace for f in explain(recording, "--quantile", "0.9")["findings"] for trace in f["exemplars"]}


@needs_root
def test_the_cpu_books_agree(recording: pathlib.Path) -> None:
    book = explain(recording)["cpu_book"]
    assert book["measured_ns"] > 100_000_000 and book["scheduler_ns"] > 100_000_000
    assert abs(book["difference"]) < 0.03


@needs_root
def test_a_garbage_collection_is_named(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "r.duckdb"
    result = tailspan("run", "--out", file, "--no-explain", "--", sys.executable, HERE / "collecting.py", 200)
    assert result.returncode == 0, result.stderr
    ledgers = [pieces_of(file, trace) for trace in slowest_traces(file)]
    collections = [p for ledger in ledgers for p in ledger if p["cause"] == "gc" and p["span"] == "tidy"]
    assert sum(p["end_ns"] - p["start_ns"] for p in collections) > 5_000_000
    assert {p["blame"]["name"] for p in collections} == {"garbage collector"}
    assert any("generation 2" in p["blame"]["detail"] for p in collections)


@needs_root
@pytest.mark.parametrize("mode, join", [("thread", "thread_id"), ("plain", "only_open_span")])
def test_a_program_without_hooks_is_joined(tmp_path: pathlib.Path, mode: str, join: str) -> None:
    """By the spans' own thread.id, else by being alone: its 4 ms of waiting are `read`'s, and the way is said."""
    file = tmp_path / "r.duckdb"
    result = tailspan("run", "--out", file, "--no-explain", "--", sys.executable, "-I", HERE / "unhooked.py", mode, 100)
    assert result.returncode == 0, result.stderr
    answer = explain(file, "--quantile", "0.9")
    assert answer["requests"] == 100
    assert answer["unexplained_share"] < 0.1
    assert answer["join"][join] > 0.9 and answer["join"]["thread_context"] == 0
    ledger = pieces_of(file, f"{7:032x}")
    waited = sum(p["end_ns"] - p["start_ns"] for p in ledger if p["cause"] == "sleep")
    assert {p["span"] for p in ledger if p["cause"] == "sleep"} == {"read"} and 3_900_000 < waited < 6_000_000
    assert {p["span"] for p in ledger if p["cause"] == "on_cpu"} == {"ask", "read"}
    assert all(p["blame"]["confidence"] <= 0.9 for p in ledger)


@needs_root
def test_what_the_disk_did_is_evidence(tmp_path: pathlib.Path) -> None:
    device = os.stat(tmp_path).st_dev
    if not pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").exists():
        pytest.skip("the temporary folder is on no block device")
    (tmp_path / "data").write_bytes(os.urandom(1 << 20) * 32)
    subprocess.run(["sync", tmp_path / "data"], check=True)
    file = tmp_path / "r.duckdb"
    result = tailspan("run", "--out", file, "--no-explain", "--", sys.executable, "-I", HERE / "reading.py", tmp_path / "data", 100)
    assert result.returncode == 0, result.stderr
    answer = explain(file, "--quantile", "0.9")
    if not answer["capabilities"]["block_requests"]:
        pytest.skip("no block tracepoints")
    read = next(f for f in answer["findings"] if f["cause"] == "disk_read")
    assert read["blame"]["name"] == "data"
    assert any(e.startswith("device ") and "from issue to completion" in e for e in read["evidence_for"]), read["evidence_for"]


@needs_root
def test_without_privileges_spans_are_recorded_and_the_lack_is_said(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent.name.startswith("pytest-"):
            parent.chmod(0o755)
    file = tmp_path / "r.duckdb"
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for program in (TAILSPAN, sys.executable, HERE / "service.py"):
        if subprocess.run([*as_nobody, "test", "-r", program]).returncode != 0:
            pytest.skip(f"another user cannot reach {program}")
    command = [*as_nobody, TAILSPAN, "run", "--out", str(file),
               "--no-explain", "--", sys.executable, str(HERE / "service.py"), "220"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "spans only" in result.stderr
    answer = explain(file)
    assert answer["requests"] == 220
    assert not all(answer["capabilities"].values())
