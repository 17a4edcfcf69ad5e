"""Hostile clients against `tailspan run`'s receiver: it lives on, its memory stays bounded, others are served, and what
is refused is refused with a clear status."""

from __future__ import annotations

import gzip
import itertools
import json
import pathlib
import re
import resource
import socket
import subprocess
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator

import pytest
from program import TAILSPAN, post_spans, tailspan

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
MIB = 1 << 20
RESIDENT_MIB_MAX = 1600  # src/collect/limits.h, with everything at its limit
FLOOD_WITHIN_S = 3  # what LangSmith's client waits for a connection
SERVED_WITHIN_S = 10  # what OTLP exporters wait for an answer; a slow request loses its slot before


class Receiver:
    def __init__(self, file: pathlib.Path) -> None:
        self.file = file
        self.numbers = itertools.count(1)
        command = [TAILSPAN, "run", "--out", str(file), "--no-explain", "--", "sh", "-c",
                   "echo $OTEL_EXPORTER_OTLP_ENDPOINT; exec cat"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def status(self, path: str, body: bytes, content_type: str = JSON, coding: str = "", method: str = "POST") -> int:
        headers = {"Content-Type": content_type} | ({"Content-Encoding": coding} if coding else {})
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            text = refused.read().decode(errors="replace")
            assert len(text) > 10, "the refusal says nothing"
            return refused.code

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def peak_mib(self) -> float:
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]

    def check(self, within_s: float = SERVED_WITHIN_S) -> None:
        """Others are served, soon."""
        began = time.monotonic()
        post_spans(self.port, 1, prefix=next(self.numbers))
        assert time.monotonic() - began < within_s
        assert self.process.poll() is None
        assert self.peak_mib() < RESIDENT_MIB_MAX

    def finish(self) -> None:
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        assert tailspan("explain", self.file).returncode in (0, 3)


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    receiver = Receiver(tmp_path_factory.mktemp("hostile") / "r.duckdb")
    yield receiver
    receiver.check()
    receiver.finish()


def length_delimited(field: int, data: bytes) -> bytes:
    out, size = bytearray([field << 3 | 2]), len(data)
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(out + bytes([size])) + data


def otlp(spans: bytes) -> bytes:
    return length_delimited(1, length_delimited(2, spans))


def span(number: int, more: bytes = b"") -> bytes:
    ids = length_delimited(1, b"t" * 16) + length_delimited(2, (number + 1).to_bytes(8, "big"))
    return length_delimited(2, ids + more)


def nested_protobuf(depth: int) -> bytes:
    value = length_delimited(1, b"x")
    for _ in range(depth):
        value = length_delimited(5, length_delimited(1, value))
    return otlp(span(1, length_delimited(9, length_delimited(1, b"deep") + length_delimited(2, value))))


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, 6)


def deep_json(depth: int) -> bytes:
    value = '{"arrayValue":{"values":[' * depth + "]}}" * depth
    attribute = '{"key":"deep","value":%s}' % value
    ids = '"traceId":"%s","spanId":"%s"' % ("11" * 16, "22" * 8)
    return ('{"resourceSpans":[{"scopeSpans":[{"spans":[{%s,"attributes":[%s]}]}]}]}' % (ids, attribute)).encode()


def multipart(parts: int) -> bytes:
    part = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n\r\n'
    return part * parts + b"--b--\r\n"


RUN = '{"id":"01a22db0-786f-7370-98d1-%012x","trace_id":"01a22db0-786f-7370-98d1-%012x","name":"r","start_time":1796061665}'
MULTIPART = "multipart/form-data; boundary=b"

LONG = ("deflate bomb", "numbers without end", "empty events", "members without end")  # like others of the list
BODIES: list[tuple[str, str, Callable[[], bytes], str, str, set[int]]] = [
    ("empty JSON", "/v1/traces", lambda: b"", JSON, "", {400}),
    ("no protobuf", "/v1/traces", lambda: b"\xff" * 1000, PROTOBUF, "", {400}),
    ("another type", "/v1/traces", lambda: b"x", "text/plain", "", {415}),
    ("another coding", "/v1/traces", lambda: b"x", JSON, "br", {415}),
    ("damaged gzip", "/v1/traces", lambda: gzipped(b"{}")[:-6], JSON, "gzip", {400}),
    ("gzip bomb", "/v1/traces", lambda: gzipped(bytes(200 * MIB)), PROTOBUF, "gzip", {413}),
    ("gzip bomb in a bomb", "/v1/traces", lambda: gzipped(gzipped(bytes(200 * MIB))), PROTOBUF, "gzip, gzip", {413}),
    ("members without end", "/v1/traces", lambda: gzipped(bytes(5 * MIB)) + gzip.compress(b"") * 2_000_000, PROTOBUF, "gzip", {400}),
    ("deflate bomb", "/v1/traces", lambda: zlib.compress(bytes(200 * MIB)), JSON, "deflate", {413}),
    ("body over the limit", "/v1/traces", lambda: bytes(65 * MIB), JSON, "", {413}),
    ("numbers without end", "/v1/traces", lambda: gzipped(b"[" + b"1," * (50 * MIB) + b"1]"), JSON, "gzip", {413}),
    ("numbers", "/v1/traces", lambda: gzipped(b'{"a":[' + b"1," * (15 * MIB) + b"1]}"), JSON, "gzip", {200}),
    ("brackets", "/v1/traces", lambda: b"[" * (10 * MIB), JSON, "", {400}),
    ("braces for runs", "/runs", lambda: b'{"a":' * MIB, JSON, "", {400}),
    ("deep JSON", "/v1/traces", lambda: deep_json(300), JSON, "", {200}),
    ("deeper JSON", "/v1/traces", lambda: deep_json(100_000), JSON, "", {400}),
    ("deep protobuf", "/v1/traces", lambda: nested_protobuf(5000), PROTOBUF, "", {200}),
    ("empty attributes", "/v1/traces", lambda: gzipped(otlp(span(1, b"\x4a\x00" * (50 * MIB)))), PROTOBUF, "gzip", {200}),
    ("empty events", "/v1/traces", lambda: gzipped(otlp(span(1, b"\x5a\x00" * (50 * MIB)))), PROTOBUF, "gzip", {200}),
    ("empty spans", "/v1/traces", lambda: gzipped(otlp(b"\x12\x00" * (50 * MIB))), PROTOBUF, "gzip", {200}),
    ("fat spans", "/v1/traces",
     lambda: gzipped(otlp(b"".join(span(i, b"\x4a\x03\x0a\x01a" * 128) for i in range(150_000)))), PROTOBUF, "gzip", {413}),
    ("a million parts", "/runs/multipart", lambda: multipart(1_000_000), MULTIPART, "", {400}),
    ("no boundary", "/runs/multipart", lambda: multipart(1), "multipart/form-data", "", {400}),
    ("another boundary", "/runs/multipart", lambda: multipart(1), "multipart/form-data; boundary=c", "", {400}),
    ("a part without end", "/runs/multipart", lambda: b"--b\r\n" + b"x" * (10 * MIB), MULTIPART, "", {400}),
    ("metadata without end", "/runs",
     lambda: b'{"id":"01a22db0-786f-7370-98d1-a5dd2698d506","start_time":1796061665,"extra":{"metadata":{%s}}}'
     % b",".join(b'"%d":1' % i for i in range(2_000_000)), JSON, "", {201}),
    ("runs without end", "/runs/batch",
     lambda: ('{"post":[%s]}' % ",".join(RUN % (i, i) for i in range(200_000))).encode(), JSON, "", {202}),
    ("a run that is no object", "/runs", lambda: b"[]", JSON, "", {400}),
    ("no such path", "/v2/traces", lambda: b"{}", JSON, "", {404}),
]


@pytest.mark.parametrize("path, make, content_type, coding, wanted", [
    pytest.param(*case, id=name, marks=pytest.mark.long if name in LONG else ()) for name, *case in BODIES])
def test_a_bad_body_is_refused_or_cut(receiver: Receiver, path: str, make: Callable[[], bytes], content_type: str,
                                      coding: str, wanted: set[int]) -> None:
    assert receiver.status(path, make(), content_type, coding) in wanted
    receiver.check()


def test_a_zstd_bomb(receiver: Receiver) -> None:
    """One frame whose blocks each repeat a byte 128 KiB long: 4 bytes of them make that much."""
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    frame = (0xFD2FB528).to_bytes(4, "little") + bytes([0x00, 0x58]) + block * 4000
    assert receiver.status("/runs/multipart", frame, MULTIPART, "zstd") == 413
    receiver.check()


def test_a_body_that_never_ends(receiver: Receiver) -> None:
    with receiver.connect() as endless:
        endless.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * MIB + b"\r\n"
        try:
            for _ in range(100):
                endless.sendall(chunk)
        except OSError:
            pass  # answered and closed
        assert endless.recv(100).startswith(b"HTTP/1.1 413")
    receiver.check()


@pytest.mark.parametrize("header", [b"X: " + b"x" * (10 * MIB), b"X: x\r\n" * MIB, b"\x00" * MIB, b"POST " * MIB])
def test_a_header_flood(receiver: Receiver, header: bytes) -> None:
    with receiver.connect() as flood:
        try:
            flood.sendall(b"POST /v1/traces HTTP/1.1\r\n" + header)
        except OSError:
            pass
        try:
            status = flood.recv(100).split(b" ")[1]
        except (OSError, IndexError):
            status = b"closed"
        assert status in (b"431", b"400", b"closed")
    receiver.check()


def hold(receiver: Receiver, wanted: int, begin: bytes) -> list[socket.socket]:
    """As many connections as this process may have, each of which begins and does not go on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, wanted + 200)), hard))
    held = []
    for _ in range(min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", receiver.port))
        held.append(connection)
        if begin:
            try:
                connection.send(begin)
            except OSError:
                pass  # the backlog is full: this one waits in the kernel
    return held


@pytest.mark.parametrize("begin", [
    pytest.param(b"", id="idle", marks=pytest.mark.long),
    pytest.param(b"P", id="in the header", marks=pytest.mark.long),
    pytest.param(b"POST /runs HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n{", id="in the body"),
])
def test_ten_thousand_connections(receiver: Receiver, begin: bytes) -> None:
    held = hold(receiver, 10_000, begin)
    try:
        receiver.check(FLOOD_WITHIN_S)
        time.sleep(1)
        receiver.check(FLOOD_WITHIN_S)
    finally:
        for connection in held:
            connection.close()
    receiver.check()


def test_large_bodies_that_stop_coming(receiver: Receiver) -> None:
    begin = b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 67000000\r\n\r\n"
    held = []
    try:
        for _ in range(40):  # 40 times 30 MiB
            connection = receiver.connect()
            held.append(connection)
            connection.sendall(begin)
            for _ in range(30):
                connection.sendall(b" " * MIB)
        receiver.check()
    finally:
        for connection in held:
            connection.close()


def test_a_trickle_does_not_hold_the_port(receiver: Receiver) -> None:
    """600 clients that send a byte from time to time, each in the middle of its header."""
    held = hold(receiver, 600, b"POST /runs HTTP/1.1\r\nX: ")
    try:
        for _ in range(8):
            for connection in held:
                try:
                    connection.send(b"x")
                except OSError:
                    pass
            receiver.check()
            time.sleep(0.1)
    finally:
        for connection in held:
            connection.close()


def test_a_trace_deep_wide_and_in_a_circle(receiver: Receiver) -> None:
    spans = [{"traceId": "ab" * 16, "spanId": f"{i + 1:016x}", "parentSpanId": f"{i if 0 < i < 5000 else 5000 if i == 0 else 1:016x}",
              "name": "n", "startTimeUnixNano": "1796061665000000000", "endTimeUnixNano": "1796061666000000000"}
             for i in range(100_000)]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    assert receiver.status("/v1/traces", body) == 200
    receiver.check()


def test_the_peak_of_it_all(receiver: Receiver) -> None:
    print(f"peak resident memory {receiver.peak_mib():.0f} MiB")
    assert receiver.peak_mib() < RESIDENT_MIB_MAX
