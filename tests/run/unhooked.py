"""A program without hooks that says its own spans: unhooked.py thread|plain REQUESTS, one request after another.

Each computes, waits 4 ms in `read` and computes again. thread: spans carry their thread.id, and `read` runs in a thread of
its own. plain: they carry none, and all runs in one thread."""

import json
import os
import sys
import threading
import time
import urllib.request

with_thread_ids = sys.argv[1] == "thread"
spans = []


def compute() -> None:
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass


def span(request: int, name: str, work) -> None:
    """Runs work and keeps a span of it: `ask` is the root, `read` its child."""
    made = {"traceId": f"{request + 1:032x}", "spanId": f"{2 * request + (1 if name == 'ask' else 2):016x}", "name": name,
            "startTimeUnixNano": str(time.time_ns())}
    if name != "ask":
        made["parentSpanId"] = f"{2 * request + 1:016x}"
    if with_thread_ids:
        made["attributes"] = [{"key": "thread.id", "value": {"intValue": str(threading.get_native_id())}}]
    work()
    made["endTimeUnixNano"] = str(time.time_ns())
    spans.append(made)


def ask(request: int) -> None:
    def read() -> None:
        span(request, "read", lambda: time.sleep(0.004))

    compute()
    if with_thread_ids:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    else:
        read()
    compute()


for number in range(int(sys.argv[2])):
    span(number, "ask", lambda: ask(number))
    time.sleep(0.001)
resource = {"attributes": [{"key": "process.pid", "value": {"intValue": str(os.getpid())}}]}
body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}).encode()
urllib.request.urlopen(urllib.request.Request(
    os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"], body, {"Content-Type": "application/json"}), timeout=10)
