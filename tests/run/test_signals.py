"""Signals to `tailspan run`: what the command gets of them, and that none costs data."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from program import TAILSPAN, query, tailspan


def test_signals_reach_the_command(tmp_path: pathlib.Path) -> None:
    script = "trap 'echo got usr1' USR1; trap 'echo got term; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    command = [TAILSPAN, "run", "--out", str(tmp_path / "r.duckdb"), "--no-explain", "--", "sh", "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "got usr1\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.readline() == "got term\n"
    assert process.wait(30) == 5


def test_ignored_signals_stay_ignored(tmp_path: pathlib.Path) -> None:
    """As nohup and a shell's background jobs have it. What tailspan itself ignores is not handed on."""
    def nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    result = tailspan("run", "--out", tmp_path / "r.duckdb", "--no-explain", "--", "grep", "SigIgn", "/proc/self/status",
                      preexec_fn=nohup)
    ignored = int(result.stdout.split()[1], 16)
    assert [ignored >> (s - 1) & 1 for s in (signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE)] == [1, 0, 0]


def test_a_second_interrupt_costs_no_data(tmp_path: pathlib.Path) -> None:
    """The first ends the command; what it has sent is still being written when the second comes."""
    script = "trap 'exit 5' INT; echo ready; while :; do sleep 0.02; done"
    command = [TAILSPAN, "run", "--out", str(tmp_path / "r.duckdb"), "--", "sh", "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    process.send_signal(signal.SIGINT)
    while children.read_text():
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 5, log
    assert "the recording is whole" in log
    assert query(tmp_path / "r.duckdb", "SELECT end_unix_ns IS NOT NULL FROM recording") == "true"


COUNTER = """
import os, pathlib, signal, sys
if "leave" in sys.argv:
    os.setpgid(0, 0)
told = pathlib.Path(sys.argv[1])
wanted = {signal.SIGINT, signal.SIGHUP, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
told.with_suffix(".ready").touch()
got = []
while (one := signal.sigtimedwait(wanted, 0.5 if got else 20)) is not None:
    got.append(signal.Signals(one.si_signo).name)
told.write_text(" ".join(got))
"""


def while_stopped(pid: int, send: Callable[[], object]) -> None:
    """The command has taken its own before tailspan can do anything: one that came too soon would be one with it."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.1)
    send()
    time.sleep(0.1)
    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("send, leave, expected", [
    pytest.param(lambda pid, terminal: while_stopped(pid, lambda: os.write(terminal, b"\x03")), [], ["SIGINT"], id="ctrl-c"),
    # timeout(1) puts itself into a group of its own, which is then not the terminal's.
    pytest.param(lambda pid, terminal: os.write(terminal, b"\x03"), ["leave"], ["SIGINT"], id="ctrl-c, command in its own group"),
    pytest.param(lambda pid, terminal: while_stopped(pid, lambda: os.killpg(pid, signal.SIGINT)), [], ["SIGINT"],
                 id="to the group"),
    pytest.param(lambda pid, terminal: os.killpg(pid, signal.SIGTERM), ["leave"], ["SIGTERM"], id="to the group that it left"),
    pytest.param(lambda pid, terminal: os.kill(pid, signal.SIGINT), [], ["SIGINT"], id="to tailspan"),
    pytest.param(lambda pid, terminal: os.close(terminal), [], ["SIGHUP"], id="hangup"),
])
def test_the_command_gets_each_signal_once(tmp_path: pathlib.Path, send: Callable[[int, int], object], leave: list[str],
                                           expected: list[str]) -> None:
    told = tmp_path / "signals"
    command = [TAILSPAN, "run", "--no-probes", "--no-explain", "--out", str(tmp_path / "r.duckdb"), "--", sys.executable, "-c",
               COUNTER, str(told), *leave]
    pid, terminal = os.forkpty()  # the leader of a session, in the terminal's foreground
    if pid == 0:
        try:
            os.execv(TAILSPAN, command)
        finally:
            os._exit(127)
    deadline = time.monotonic() + 20
    while not told.with_suffix(".ready").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    send(pid, terminal)
    os.waitpid(pid, 0)
    if expected != ["SIGHUP"]:
        os.close(terminal)
    assert told.read_text().split() == expected


def test_nothing_stays_when_tailspan_is_killed(tmp_path: pathlib.Path) -> None:
    """Of its own: the command goes on."""
    def members(group: int) -> list[str]:
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)
            except OSError:
                continue
            if int(fields[1].split()[2]) == group and fields[1].split()[0] != "Z":
                found.append(fields[0].split("(", 1)[1])
        return found

    command = [TAILSPAN, "run", "--no-probes", "--out", str(tmp_path / "r.duckdb"), "--", "sh", "-c", "echo ready; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "ready\n"
        process.kill()
        process.wait()
        deadline = time.monotonic() + 5
        while members(process.pid) != ["sh"] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert members(process.pid) == ["sh"]
        process.stdin.write("\n")
