"""What a killed recorder and a full disk leave in the recording."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import sys
import time
import uuid

import pytest
from program import HERE, a_command_that_waits, explain, langsmith_run, needs_root, post_spans, query, send, tailspan


def test_a_killed_recorder_takes_nothing_with_it(tmp_path: pathlib.Path) -> None:
    """SIGKILL to tailspan: the command goes on, and what was sent two seconds before is explained."""
    with a_command_that_waits(tmp_path / "r.duckdb") as (process, port):
        post_spans(port, 300)
        time.sleep(2)
        process.kill()
        process.wait(10)
        # Exporters are refused at once, although the command lives on: they need not wait for an answer.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    result = tailspan("explain", tmp_path / "r.duckdb", "--format", "json")
    assert result.returncode in (0, 3), result.stderr
    assert json.loads(result.stdout)["requests"] == 300


def test_open_runs_outlive_a_killed_recorder(tmp_path: pathlib.Path) -> None:
    """Runs that were accepted and have not ended are in the file two seconds later: as rows without an end."""
    end = "2026-11-30T18:00:00.250Z"
    ended = [langsmith_run(1000 + i, "ask", end_time=end) for i in range(250)]
    opened = [langsmith_run(2000 + i, "ask") for i in range(20)]
    inner = [langsmith_run(3000 + i, "inner", 2000 + i, end_time=end) for i in range(20)]
    later = [langsmith_run(4000 + i, "ask") for i in range(30)]
    # What ends meanwhile replaces its open row; what grows stays open.
    patches = [{"id": run["id"], "trace_id": run["trace_id"], "end_time": end} for run in later]
    grown = [{"id": run["id"], "trace_id": run["trace_id"], "tags": ["grown"]} for run in opened]
    with a_command_that_waits(tmp_path / "r.duckdb") as (process, port):
        assert send(port, "POST", "/runs/batch", {"post": ended + opened + inner + later, "patch": []}) == 202
        time.sleep(1.2)
        assert send(port, "POST", "/runs/batch", {"post": [], "patch": patches + grown}) == 202
        time.sleep(2)
        process.kill()

    answer = explain(tmp_path / "r.duckdb")
    assert answer["operation"] == "ask" and answer["requests"] == 280
    assert answer["unfinished"] == answer["loss"]["trace_unfinished"] == answer["loss"]["span_incomplete"] == 20
    assert "their end never came" in tailspan("explain", tmp_path / "r.duckdb").stdout
    one = tailspan("explain", tmp_path / "r.duckdb", "--trace", uuid.UUID(int=2000))
    assert one.returncode == 1 and "`ask` began and its end never came" in one.stderr

    newest = "SELECT count(*) FROM span_newest WHERE "
    assert query(tmp_path / "r.duckdb", newest + "complete") == "300"
    assert query(tmp_path / "r.duckdb", newest + "NOT complete AND end_unix_ns IS NULL AND duration_ms IS NULL") == "20"
    assert query(tmp_path / "r.duckdb", newest + "NOT complete AND attributes::VARCHAR LIKE '%grown%'") == "20"
    # Rows: what had ended when it came once, the others once for each state that lasted.
    assert query(tmp_path / "r.duckdb", "SELECT count(*) FROM span") == str(250 + 20 + 2 * 20 + 2 * 30)


@needs_root
def test_a_full_disk_is_said_and_the_command_goes_on(tmp_path: pathlib.Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", mount], check=True)
    try:
        script = ("import json,os,sys,time,urllib.request; sys.path.insert(0, %r)\nfrom program import post_spans\n"
                  "port = int(os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'].rsplit(':', 1)[1])\n"
                  "for i in range(40): post_spans(port, 2000, i)\ntime.sleep(1.5)\nprint('done')" % str(HERE))
        result = tailspan("run", "--out", mount / "r.duckdb", "--no-explain", "--", sys.executable, "-c", script)
        assert "done" in result.stdout
        assert result.returncode == 125
        assert "not whole" in result.stderr
        explained = tailspan("explain", mount / "r.duckdb", "--format", "json")
        assert explained.returncode in (0, 1, 3)
    finally:
        subprocess.run(["umount", mount], check=True)
