"""What tests of the whole program share: running it, reading what it recorded, and clients of its receiver."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.request
import uuid
from typing import Iterator

import pytest

TAILSPAN = os.environ.get("TAILSPAN", "build/release/bin/tailspan")
HERE = pathlib.Path(__file__).parent
ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="needs root for kernel probes and mounts")


def tailspan(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [TAILSPAN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]


def run(tmp_path: pathlib.Path, *command: object, options: tuple[object, ...] = ("--no-explain",)) -> subprocess.CompletedProcess[str]:
    return tailspan("run", "--out", tmp_path / "r.duckdb", *options, "--", *command)


def one_error_line(result: subprocess.CompletedProcess[str], *words: str) -> None:
    lines = [line for line in result.stderr.splitlines() if "error" in line]
    assert len(lines) == 1, result.stderr
    for word in words:
        assert word in lines[0]


def explain(recording: pathlib.Path, *arguments: str) -> dict:
    result = tailspan("explain", recording, "--format", "json", *arguments)
    assert result.returncode in (0, 3), result.stderr
    answer = json.loads(result.stdout)
    # What a real program records never contradicts itself, and its ledgers are whole.
    never = {"loop_record_contradicts", "ledger_gap", "ledger_law_broken", "ledger_cut"}
    assert not never & answer.get("loss", {}).keys(), answer["loss"]
    return answer


def query(recording: pathlib.Path, sql: str) -> str:
    """The first value of the answer, by the DuckDB library alone."""
    library = ctypes.CDLL(str(pathlib.Path(TAILSPAN).resolve().parents[1] / "lib/tailspan/libduckdb.so"))
    library.duckdb_value_varchar.restype = ctypes.c_char_p
    library.duckdb_value_varchar.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64]
    database, connection = ctypes.c_void_p(), ctypes.c_void_p()
    result = (ctypes.c_uint64 * 16)()
    assert library.duckdb_open(str(recording).encode(), ctypes.byref(database)) == 0
    try:
        assert library.duckdb_connect(database, ctypes.byref(connection)) == 0
        assert library.duckdb_query(connection, sql.encode(), ctypes.byref(result)) == 0
        return str(library.duckdb_value_varchar(ctypes.byref(result), 0, 0).decode())
    finally:
        library.duckdb_destroy_result(ctypes.byref(result))
        library.duckdb_disconnect(ctypes.byref(connection))
        library.duckdb_close(ctypes.byref(database))


def post_spans(port: int, count: int, prefix: int = 0) -> None:
    now = time.time_ns()
    spans = [{"traceId": f"{prefix:08x}{i + 1:024x}", "spanId": f"{prefix + 1:04x}{i + 1:012x}", "name": "op", "kind": 2,
              "startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 1_000_000 * (i % 7 + 1))} for i in range(count)]
    body = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/traces", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    assert urllib.request.urlopen(request, timeout=10).status == 200


def send(port: int, method: str, path: str, body: object) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return int(answer.status)


def langsmith_run(number: int, name: str, parent: int = 0, **more: object) -> dict[str, object]:
    trace = str(uuid.UUID(int=parent or number))
    run = {"id": str(uuid.UUID(int=number)), "trace_id": trace, "name": name, "run_type": "chain",
           "start_time": "2026-11-30T18:00:00Z", **more}
    return run | ({"parent_run_id": trace} if parent else {})


@contextlib.contextmanager
def a_command_that_waits(file: pathlib.Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A recorder and its receiver's port. The command outlives the recorder, which the block has killed."""
    script = "echo $OTEL_EXPORTER_OTLP_ENDPOINT; read line; echo done"
    command = [TAILSPAN, "run", "--out", str(file), "--no-explain", "--", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        yield process, int(process.stdout.readline().rsplit(":", 1)[1])
        assert process.wait(10) == -signal.SIGKILL
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
