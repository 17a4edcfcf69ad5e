"""`tailspan run --pid` and `--cgroup`: attached to what somebody else started, and left alone again."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Iterator

import pytest
from program import HERE, TAILSPAN, explain, needs_root, one_error_line, tailspan

SITECUSTOMIZE = pathlib.Path(TAILSPAN).resolve().parents[1] / "python" / "sitecustomize"
CGROUPS = {"v1": pathlib.Path("/sys/fs/cgroup/freezer"), "v2": pathlib.Path("/sys/fs/cgroup/unified")}
if pathlib.Path("/sys/fs/cgroup/cgroup.procs").exists():
    CGROUPS["v2"] = pathlib.Path("/sys/fs/cgroup")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Service:
    """attached.py, running, with the hooks but no recorder."""

    def __init__(self, operation: str, port: int, below: tuple[str, ...] = ()) -> None:
        self.port = port
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "LANGSMITH_"))}
        environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}", "PYTHONPATH": str(SITECUSTOMIZE)}
        self.process = subprocess.Popen([*below, sys.executable, HERE / "attached.py", operation], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        assert self.process.stdin and self.process.stdout
        assert self.process.stdout.readline() == "ready\n"
        self.served = 0
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.served = int(line)

    def begin(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        status = self.process.wait(20)
        self.reader.join()
        return status

    def goes_on(self) -> bool:
        """It serves requests, and none of its threads is stopped or traced."""
        before = self.served
        deadline = time.monotonic() + 10
        while self.served < before + 50 and time.monotonic() < deadline:
            time.sleep(0.05)
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return self.served >= before + 50 and "TracerPid:\t0\n" in status


@pytest.fixture
def service() -> Iterator[Service]:
    one = Service("ask", free_port())
    yield one
    if one.process.poll() is None:
        one.end()


@contextlib.contextmanager
def attached(service: Service, file: pathlib.Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """tailspan once it says that it is attached; the service begins then."""
    command = [TAILSPAN, "run", "--out", file, "--port", service.port, "--no-explain", *arguments]
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True)
    assert process.stderr
    said = ""
    while "attached to" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    service.begin()
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)
        process.stderr.close()


def check_answer(file: pathlib.Path, requests_min: int, operation: str = "ask") -> None:
    answer = explain(file, "--operation", operation)
    assert answer["requests"] >= requests_min
    assert answer["unexplained_share"] < 0.05
    most = max(answer["findings"], key=lambda finding: finding["typical_ns"])
    assert most["cause"] == "sleep" and most["blame"]["kind"] == "timer"


@needs_root
@pytest.mark.long
def test_attached_for_a_while(service: Service, tmp_path: pathlib.Path) -> None:
    with attached(service, tmp_path / "r.duckdb", "--pid", service.process.pid, "--duration", 5) as process:
        assert process.wait(30) == 0
    assert service.goes_on()
    check_answer(tmp_path / "r.duckdb", 100)
    assert service.end() == 0


@needs_root
def test_children_that_run_already(tmp_path: pathlib.Path) -> None:
    """As a server's workers do below the process that started them."""
    service = Service("ask", free_port(), below=("sh", "-c", '"$@"; exit $?', "sh"))
    try:
        with attached(service, tmp_path / "r.duckdb", "--pid", service.process.pid, "--duration", 4) as process:
            assert process.wait(30) == 0
        assert service.goes_on()
    finally:
        assert service.end() == 0
    check_answer(tmp_path / "r.duckdb", 80)


@needs_root
@pytest.mark.parametrize("by", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_attached_until_interrupted(service: Service, tmp_path: pathlib.Path, by: signal.Signals) -> None:
    with attached(service, tmp_path / "r.duckdb", "--pid", service.process.pid) as process:
        time.sleep(3)
        process.send_signal(by)
        assert process.wait(30) == 0
    assert service.goes_on()
    check_answer(tmp_path / "r.duckdb", 60)
    assert service.end() == 0


@needs_root
def test_a_killed_tailspan_leaves_the_process_alone(service: Service, tmp_path: pathlib.Path) -> None:
    with attached(service, tmp_path / "r.duckdb", "--pid", service.process.pid) as process:
        time.sleep(4)
        process.kill()
    assert service.goes_on()
    check_answer(tmp_path / "r.duckdb", 60)
    # Nothing of it is left in the kernel: another may attach.
    second = tailspan("run", "--out", tmp_path / "s.duckdb", "--no-explain", "--pid", service.process.pid, "--duration", 1)
    assert second.returncode == 0 and "kernel probes on" in second.stderr
    assert service.end() == 0


@needs_root
def test_tailspan_ends_with_the_process(service: Service, tmp_path: pathlib.Path) -> None:
    """Also while nobody has collected the process: it is this test's child, a zombie until then."""
    with attached(service, tmp_path / "r.duckdb", "--pid", service.process.pid) as process:
        time.sleep(2)
        service.process.kill()
        assert process.wait(30) == 0
    assert service.process.wait() == -signal.SIGKILL
    assert explain(tmp_path / "r.duckdb")["requests"] >= 30


@pytest.fixture(params=[pytest.param("v1", marks=pytest.mark.long), "v2"])
def cgroup(request: pytest.FixtureRequest) -> Iterator[pathlib.Path]:
    if not os.access(CGROUPS[request.param] / "cgroup.procs", os.W_OK):
        pytest.skip(f"cgroup {request.param} is not mounted here, or not ours to use")
    folder = CGROUPS[request.param] / f"tailspan-test-{os.getpid()}"
    folder.mkdir()
    yield folder
    for inner in [*(p for p in folder.iterdir() if p.is_dir()), folder]:
        for pid in (inner / "cgroup.procs").read_text().split():
            (CGROUPS[request.param] / "cgroup.procs").write_text(pid)
        inner.rmdir()


@needs_root
def test_a_cgroup_and_the_one_below_it(service: Service, cgroup: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The service is in a cgroup below the one named; another comes into it later."""
    inner = cgroup / "inner"
    inner.mkdir()
    (inner / "cgroup.procs").write_text(str(service.process.pid))
    later = Service("late", service.port)
    try:
        with attached(service, tmp_path / "r.duckdb", "--cgroup", cgroup) as process:
            (inner / "cgroup.procs").write_text(str(later.process.pid))
            time.sleep(2)
            later.begin()
            time.sleep(3)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
        assert service.goes_on() and later.goes_on()
    finally:
        later.end()
    for operation in ("ask", "late"):
        check_answer(tmp_path / "r.duckdb", 60, operation)
    assert service.end() == 0


def refused(tmp_path: pathlib.Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    result = tailspan("run", "--out", tmp_path / "r.duckdb", *arguments)
    assert result.returncode == 2, result.stderr
    assert not (tmp_path / "r.duckdb").exists()
    return result


def ended_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_process_that_is_not_there(tmp_path: pathlib.Path) -> None:
    pid = ended_pid()
    one_error_line(refused(tmp_path, "--pid", pid), "no process", str(pid))
    one_error_line(refused(tmp_path, "--pid", os.getpid(), "--pid", pid), "no process", str(pid))


@pytest.mark.parametrize("pid", ["0", "-4", "init", "1.5", "99999999999"])
def test_what_is_no_pid(tmp_path: pathlib.Path, pid: str) -> None:
    assert "--pid" in refused(tmp_path, f"--pid={pid}").stderr


@needs_root
def test_a_process_of_another_user(tmp_path: pathlib.Path) -> None:
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*as_nobody, "test", "-x", TAILSPAN]).returncode != 0:
        pytest.skip(f"another user cannot reach {TAILSPAN}")
    arguments = [*as_nobody, TAILSPAN, "run", "--out", str(tmp_path / "r.duckdb"), "--pid", str(os.getpid())]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=60, cwd="/")
    assert result.returncode == 2, result.stderr
    one_error_line(result, str(os.getpid()), "another user", "root")


def test_what_is_no_cgroup(tmp_path: pathlib.Path) -> None:
    one_error_line(refused(tmp_path, "--cgroup", tmp_path), "no cgroup.procs")
    one_error_line(refused(tmp_path, "--cgroup", tmp_path / "none"), "no cgroup.procs")


@needs_root
def test_an_empty_cgroup(tmp_path: pathlib.Path, cgroup: pathlib.Path) -> None:
    one_error_line(refused(tmp_path, "--cgroup", cgroup), "no process is in")


def test_options_that_do_not_go_together(tmp_path: pathlib.Path) -> None:
    assert "--cgroup" in refused(tmp_path, "--pid", os.getpid(), "--cgroup", "/sys/fs/cgroup").stderr
    assert "--duration" in refused(tmp_path, "--duration", 3, "--", "true").stderr
    assert "--duration" in refused(tmp_path, "--pid", os.getpid(), "--duration", "0").stderr
