"""The answer as people and scripts meet it: nothing to explain, which operation it is about, on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios
import time

import pytest

from program import HERE, TAILSPAN, a_command_that_waits, explain, langsmith_run, run, send, tailspan

END = "2026-11-30T18:00:01Z"
COLUMNS = 90


def test_a_recording_without_spans_is_not_enough_data(tmp_path: pathlib.Path) -> None:
    shown = run(tmp_path, "true", options=())
    assert shown.returncode == 0, "the command's own"
    assert shown.stdout.startswith("NOT ENOUGH DATA\n  no spans were received")
    result = tailspan("explain", tmp_path / "r.duckdb", "--format", "json")
    assert result.returncode == 3
    answer = json.loads(result.stdout)
    assert (answer["verdict"], answer["requests"], answer["operation"], answer["findings"]) == ("insufficient", 0, "", [])
    assert answer["verdict_reason"].startswith("no spans were received")
    assert any("OTEL_EXPORTER_OTLP_ENDPOINT" in note for note in answer["notes"])
    assert any("tailspan doctor" in note for note in answer["notes"])
    assert tailspan("explain", tmp_path / "r.duckdb", "--operation", "ask").returncode == 3
    assert tailspan("explain", tmp_path / "r.duckdb", "--trace", "00" * 15 + "01").returncode == 1


def test_requests_that_have_not_ended_are_not_enough_data(tmp_path: pathlib.Path) -> None:
    opened = [langsmith_run(2000 + i, "ask") for i in range(3)]
    inner = [langsmith_run(3000 + i, "inner", 2000 + i, end_time=END) for i in range(3)]
    with a_command_that_waits(tmp_path / "r.duckdb") as (process, port):
        assert send(port, "POST", "/runs/batch", {"post": opened + inner, "patch": []}) == 202
        time.sleep(2)
        process.kill()
    for asked, words in (((), "no request has ended: 3 began"), (("--operation", "ask"), "no request of ask has ended: 3 began")):
        answer = explain(tmp_path / "r.duckdb", *asked)
        assert answer["verdict"] == "insufficient" and answer["unfinished"] == 3
        assert answer["verdict_reason"].startswith(words)
        assert not any("more requests" in note for note in answer["notes"])
    assert tailspan("explain", tmp_path / "r.duckdb").returncode == 3


@pytest.fixture(scope="module")
def two_operations(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Two calls of an administrator's page, later in sum than the 250 requests of the main operation."""
    file = tmp_path_factory.mktemp("two") / "r.duckdb"
    runs = [langsmith_run(1000 + i, "ask", end_time=f"2026-11-30T18:00:00.{100 + i % 50}Z") for i in range(250)]
    runs += [langsmith_run(2000, "admin", end_time=END), langsmith_run(2001, "admin", end_time="2026-11-30T18:05:00Z")]
    with a_command_that_waits(file) as (process, port):
        assert send(port, "POST", "/runs/batch", {"post": runs, "patch": []}) == 202
        time.sleep(2)
        process.kill()
    return file


def test_two_slow_requests_do_not_hide_the_main_operation(two_operations: pathlib.Path) -> None:
    answer = explain(two_operations)
    assert answer["operation"] == "ask" and answer["requests"] == 250
    assert [(o["operation"], o["enough_requests"]) for o in answer["operations"]] == [("admin", False), ("ask", True)]
    assert any("`admin` (2 requests" in note for note in answer["notes"])
    text = " ".join(tailspan("explain", two_operations).stdout.split())
    assert "admin (2 requests, too few for a verdict" in text
    assert explain(two_operations, "--operation", "admin")["requests"] == 2


def on_terminal(*arguments: object, **environment: str) -> str:
    """What a terminal of COLUMNS columns is given."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    names = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen([TAILSPAN, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=end,
                               stderr=subprocess.DEVNULL, env=names | {"TERM": "xterm"} | environment)
    os.close(end)
    text = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(terminal)
    assert process.wait(60) in (0, 3)
    return text.decode().replace("\r\n", "\n")


def columns_of(text: str) -> int:
    """Of its widest line, but for commands, which are not broken."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    return max(len(line) for line in lines if not line.startswith("   look "))


def test_run_and_explain_answer_alike_on_a_terminal(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "r.duckdb"
    script = ("import os, sys; sys.path.insert(0, %r)\nfrom program import post_spans\n"
              "post_spans(int(os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'].rsplit(':', 1)[1]), 250)" % str(HERE))
    by_run = on_terminal("run", "--out", file, "--", sys.executable, "-c", script)
    by_explain = on_terminal("explain", file)
    assert by_run == by_explain
    assert by_run.startswith("\x1b[")
    plain = tailspan("explain", file).stdout
    assert "\x1b" not in plain
    assert columns_of(by_run) <= COLUMNS < columns_of(plain)


@pytest.mark.parametrize("environment, coloured", [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)])
def test_colour_is_left_out_where_it_is_not_wanted(two_operations: pathlib.Path, environment: dict[str, str],
                                                   coloured: bool) -> None:
    text = on_terminal("explain", two_operations, **environment)
    assert ("\x1b" in text) == coloured
    assert columns_of(text) <= COLUMNS
