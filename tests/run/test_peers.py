"""Waits for the other end of a connection name it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import sys
import threading
import time

from program import HERE, explain, needs_root, tailspan


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
