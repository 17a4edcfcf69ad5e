"""`tailspan run` and `explain` as scripts use them: exit statuses, signals, bad input, a killed recorder, the answer."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
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


@pytest.mark.parametrize("command, status", [(["true"], 0), (["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -TERM $$"], 143)])
def test_exit_status_is_the_commands_own(tmp_path: pathlib.Path, command: list[str], status: int) -> None:
    assert run(tmp_path, *command).returncode == status


def test_what_the_command_leaves_in_its_status_folder_cannot_hold_it_up(tmp_path: pathlib.Path) -> None:
    """A FIFO that nobody writes to, an endless device, what only root may read, and what is no JSON."""
    script = ('cd "$TAILSPAN_STATUS_DIR" && mkfifo a.json && ln -s /dev/zero b.json && ln -s /proc/kmsg c.json && echo { > d.json')
    assert run(tmp_path, "sh", "-c", script).returncode == 0


@needs_root
def test_the_recording_is_given_to_the_caller_but_no_file_behind_a_link() -> None:
    """Under sudo CMD is the caller's own: it must not get another file by putting a link in the recording's place."""
    with tempfile.TemporaryDirectory() as kept, tempfile.TemporaryDirectory() as open_to_all:
        os.chmod(open_to_all, 0o777)
        victim = pathlib.Path(kept, "victim")
        victim.touch()
        file = pathlib.Path(open_to_all, "r.duckdb")
        arguments = ("run", "--no-explain", "--no-probes", "--out", file, "--", "sh", "-c")
        environment = os.environ | {"SUDO_UID": "65534", "SUDO_GID": "65534"}
        assert tailspan(*arguments, "true", env=environment, cwd="/").returncode == 0
        assert file.stat().st_uid == 65534
        file.unlink()
        tailspan(*arguments, f"mv {file} {file}.mine && ln -s {victim} {file}", env=environment, cwd="/")
        assert file.is_symlink() and victim.stat().st_uid == 0


def test_a_command_that_does_not_exist(tmp_path: pathlib.Path) -> None:
    result = run(tmp_path, "no-such-command-anywhere")
    assert result.returncode == 127
    one_error_line(result, "no-such-command-anywhere", "not found")
    assert not (tmp_path / "r.duckdb").exists()


def test_a_command_that_cannot_be_executed(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").write_text("not a program")
    result = run(tmp_path, tmp_path / "data")
    assert result.returncode == 126
    one_error_line(result, "not executable")


@pytest.mark.parametrize("arguments", [[], ["run"], ["explain"], ["run", "--quantile", "2", "--", "true"], ["nonsense"],
                                       ["run", "--pid", "1", "--", "true"]])
def test_wrong_usage(arguments: list[str]) -> None:
    assert tailspan(*arguments).returncode == 2


def test_help_and_version() -> None:
    assert "tailspan 0" in tailspan("--version").stdout
    for command in ("run", "explain", "doctor"):
        result = tailspan(command, "--help")
        assert result.returncode == 0 and "--" in result.stdout


def test_a_port_that_is_taken(tmp_path: pathlib.Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run(tmp_path, "true", options=("--port", taken.getsockname()[1]))
    assert result.returncode == 125
    one_error_line(result, "taken")
    assert not list(tmp_path.iterdir()), "in the way of the next try"


def test_a_file_that_is_in_the_way(tmp_path: pathlib.Path) -> None:
    (tmp_path / "r.duckdb").write_text("mine")
    result = run(tmp_path, "true")
    assert result.returncode == 125
    assert (tmp_path / "r.duckdb").read_text() == "mine"


@pytest.mark.parametrize("content", [None, "no database"])
def test_explain_of_what_is_no_recording(tmp_path: pathlib.Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "x.duckdb").write_text(content)
    result = tailspan("explain", tmp_path / "x.duckdb")
    assert result.returncode == 1
    one_error_line(result, "x.duckdb")


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


def test_the_commands_environment(tmp_path: pathlib.Path) -> None:
    environment = dict(os.environ, http_proxy="http://127.0.0.1:9", NO_PROXY="internal", LANGSMITH_RUNS_ENDPOINTS="{}",
                       TMPDIR=str(tmp_path / "none"))
    environment.pop("no_proxy", None)
    script = ("import os, sys; sys.path.insert(0, %r)\nfrom test_run import post_spans\n"
              "post_spans(int(os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'].rsplit(':', 1)[1]), 10)\n"
              "print(os.environ['no_proxy'], os.environ['NO_PROXY'], 'LANGSMITH_RUNS_ENDPOINTS' in os.environ)" % str(HERE))
    result = tailspan("run", "--out", tmp_path / "r.duckdb", "--no-explain", "--", sys.executable, "-c", script,
                      env=environment)
    assert result.stdout == "internal,127.0.0.1 internal,127.0.0.1 False\n", result.stderr
    assert query(tmp_path / "r.duckdb", "SELECT count(*) FROM span") == "10"


def test_the_command_has_none_of_tailspans_descriptors(tmp_path: pathlib.Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    result = tailspan("run", "--out", tmp_path / "r.duckdb", "--no-explain", "--", "sh", "-c",
                      "ulimit -n; ls -l /proc/self/fd", preexec_fn=limit)
    assert result.stdout.startswith("300\n"), "raised for tailspan alone"
    assert "socket:" not in result.stdout and ".duckdb" not in result.stdout


def post_spans(port: int, count: int, prefix: int = 0) -> None:
    now = time.time_ns()
    spans = [{"traceId": f"{prefix:08x}{i + 1:024x}", "spanId": f"{prefix + 1:04x}{i + 1:012x}", "name": "op", "kind": 2,
              "startTimeUnixNano": str(now), "endTimeUnixNano": str(now + 1_000_000 * (i % 7 + 1))} for i in range(count)]
    body = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/traces", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    assert urllib.request.urlopen(request, timeout=10).status == 200


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


@needs_root
def test_a_full_disk_is_said_and_the_command_goes_on(tmp_path: pathlib.Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", mount], check=True)
    try:
        script = ("import json,os,sys,time,urllib.request; sys.path.insert(0, %r)\nfrom test_run import post_spans\n"
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


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    file = tmp_path_factory.mktemp("recording") / "service.duckdb"
    result = tailspan("run", "--out", file, "--no-explain", "--", sys.executable, HERE / "service.py", 260)
    assert result.returncode == 0, result.stderr
    return file


def explain(recording: pathlib.Path, *arguments: str) -> dict:
    result = tailspan("explain", recording, "--format", "json", *arguments)
    assert result.returncode in (0, 3), result.stderr
    answer = json.loads(result.stdout)
    # What a real program records never contradicts itself, and its ledgers are whole.
    never = {"loop_record_contradicts", "ledger_gap", "ledger_law_broken", "ledger_cut"}
    assert not never & answer.get("loss", {}).keys(), answer["loss"]
    return answer


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


def call(file: pathlib.Path, address: tuple[str, int], requests: int) -> list[str]:
    """Records caller.py; its trace ids."""
    result = tailspan("run", "--out", file, "--no-explain", "--", sys.executable, HERE / "caller.py", *address, requests)
    assert result.returncode == 0, result.stderr
    traces = result.stdout.split()
    assert len(traces) == requests
    return traces


WAIT_NS = 60_000_000  # what each of these peers lets a request wait for its answer


def on_peer_ns(ledger: dict, cause: str, peer: str) -> int:
    """What is booked as this cause on this peer. At least 95 % of all that the network is blamed for must be on it (the
    machine's own work is not: it may be busy), and nothing on a peer that is not known."""
    network = [piece for piece in ledger["ledger"] if piece["cause"] in ("net_recv", "net_send", "net_connect")]
    assert "unknown peer" not in {piece["blame"]["name"] for piece in ledger["ledger"]}
    total = sum(piece["end_ns"] - piece["start_ns"] for piece in network)
    found = sum(piece["end_ns"] - piece["start_ns"] for piece in network
                if (piece["cause"], piece["blame"]["kind"], piece["blame"]["name"]) == (cause, "peer", peer))
    assert found >= 0.95 * total, network
    return found


@needs_root
def test_short_connections_to_an_unfollowed_peer_name_it(tmp_path: pathlib.Path) -> None:
    """Each request opens a connection of its own, gone long before descriptors are looked at from outside."""
    def answer(end: socket.socket) -> None:
        with end:
            end.recv(1)
            time.sleep(WAIT_NS / 1e9)
            end.sendall(b"!")

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],)).start()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        server = threading.Thread(target=serve)
        server.start()
        address = listener.getsockname()
        traces = call(tmp_path / "r.duckdb", address, 240)
        listener.shutdown(socket.SHUT_RDWR)
        server.join()
    peer = f"127.0.0.1:{address[1]}"
    result = explain(tmp_path / "r.duckdb")
    assert "unknown peer" not in {finding["blame"]["name"] for finding in result["findings"]}
    received = [f for f in result["findings"] if f["cause"] == "net_recv"]
    for figure in ("typical_ns", "tail_ns"):
        on_peer = sum(f[figure] for f in received if f["blame"]["name"] == peer)
        assert on_peer >= 0.95 * max(WAIT_NS, sum(f[figure] for f in received)), result["findings"]
    for trace in traces[::30]:
        assert on_peer_ns(explain(tmp_path / "r.duckdb", "--trace", trace), "net_recv", peer) >= 0.95 * WAIT_NS


ANSWERER = """
import select, socket, sys, threading
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
def answer(end):
    end.recv(1)
    select.select([], [], [], 0.06)  # WAIT_NS
    end.sendall(b"!")
    end.close()
while True:
    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()
"""


@needs_root
def test_short_connections_to_a_followed_peer_name_its_process(tmp_path: pathlib.Path) -> None:
    (tmp_path / "answerer").symlink_to(os.path.realpath(sys.executable))  # what the process is called
    (tmp_path / "answerer.py").write_text(ANSWERER)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = (f"{tmp_path}/answerer {tmp_path}/answerer.py {port} & sleep 1; "
              f"{sys.executable} {HERE}/caller.py 127.0.0.1 {port} 100; status=$?; kill $!; exit $status")
    result = tailspan("run", "--out", tmp_path / "r.duckdb", "--no-explain", "--", "sh", "-c", script)
    assert result.returncode == 0, result.stderr
    traces = result.stdout.split()
    assert len(traces) == 100
    for trace in traces[::20]:
        ledger = explain(tmp_path / "r.duckdb", "--trace", trace)["ledger"]
        network = {piece["blame"]["name"] for piece in ledger if piece["cause"] in ("net_recv", "net_send", "net_connect")}
        assert network <= {"answerer"}
        # The wait goes on into what the peer's thread did: it waits for a timer.
        theirs = [piece for piece in ledger if piece["evidence"] == "in the peer answerer" or piece["blame"]["name"] == "answerer"]
        assert sum(piece["end_ns"] - piece["start_ns"] for piece in theirs) >= 0.95 * WAIT_NS


@needs_root
def test_a_peer_that_does_not_let_in_is_named_while_connecting(tmp_path: pathlib.Path) -> None:
    """Its queue is full when the request to connect comes; that is sent again after a second."""
    def connecting() -> bool:
        ends = [line.split()[2:4] for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(remote.endswith(f":{address[1]:04X}") and state == "02" for remote, state in ends)  # SYN_SENT

    def serve() -> None:
        while not connecting() and not stop.is_set():
            time.sleep(0.01)
        waited.append(time.monotonic_ns())
        while not stop.is_set():
            with contextlib.suppress(TimeoutError), listener.accept()[0] as end:
                if end.getpeername() != first.getsockname():
                    waited.append(time.monotonic_ns())
                    end.recv(1)
                    end.sendall(b"!")

    stop, waited = threading.Event(), list[int]()
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, socket.socket() as first:
        address = listener.getsockname()
        first.connect(address)  # fills the queue
        listener.settimeout(0.1)
        server = threading.Thread(target=serve)
        server.start()
        try:
            trace = call(tmp_path / "r.duckdb", address, 1)[0]
        finally:
            stop.set()
            server.join()
    least_ns = waited[1] - waited[0]
    assert least_ns > 300_000_000
    ledger = explain(tmp_path / "r.duckdb", "--trace", trace)
    assert on_peer_ns(ledger, "net_connect", f"127.0.0.1:{address[1]}") >= 0.95 * least_ns


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


@needs_root
def test_under_sudo_the_command_runs_as_the_caller(tmp_path: pathlib.Path) -> None:
    import pwd
    user = pwd.getpwnam("nobody")
    environment = dict(os.environ, SUDO_UID=str(user.pw_uid), SUDO_GID=str(user.pw_gid), SUDO_USER="nobody")
    arguments = [TAILSPAN, "run", "--out", str(tmp_path / "r.duckdb"), "--no-explain", "--", "id", "-un"]
    result = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=60)
    assert result.stdout == "nobody\n"
    assert (tmp_path / "r.duckdb").stat().st_uid == user.pw_uid
    kept = tailspan("run", "--out", tmp_path / "k.duckdb", "--no-explain", "--as-root", "--", "id", "-un", env=environment)
    assert kept.stdout == "root\n"
