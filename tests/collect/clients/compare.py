"""Runs the app under each client library against a receiver and holds what was received against the app's own account.

For each client: the multiset of (kind, nearest enclosing kind) over llm, retriever, embedding, tool and root spans, the
root's duration (5 %) and the token counts. What differs must stand in differences.json, word for word; a difference that
no longer occurs must be taken out of it.

compare.py RECEIVE_DUMP PYTHON NODE_FOLDER [CLIENT...] [--print]
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
KINDS = {"llm", "retriever", "embedding", "tool"}
DURATION_TOLERANCE = 0.05
CONTENT = re.compile(r"question \d|answer \d|ANSWER \d|warm up")
CLIENTS = ["langsmith", "langsmith-otel", "langsmith-hybrid", "otel", "openinference", "openllmetry", "langsmith-js"]


def environment(client: str, port: int) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LANGSMITH_", "LANGCHAIN_", "OTEL_"))}
    if client.startswith("langsmith"):
        env["LANGSMITH_TRACING"] = "true"
        env["LANGSMITH_API_KEY"] = "any"
        env["LANGSMITH_ENDPOINT"] = f"http://127.0.0.1:{port}"
        env["LANGSMITH_PROJECT"] = "clients"
    if client in ("langsmith-otel", "langsmith-hybrid"):
        env["LANGSMITH_TRACING_MODE"] = client.removeprefix("langsmith-")
    env["TRACELOOP_TRACE_CONTENT"] = "true"
    env["ANONYMIZED_TELEMETRY"] = "false"
    return env


def record(client: str, dump: str, python: str, node_folder: str) -> tuple[list[dict], list[dict], dict[str, int]]:
    """The app's account of its requests, the spans received, the receiver's loss counters."""
    with subprocess.Popen([dump], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdin and receiver.stdout
        port = json.loads(receiver.stdout.readline())["port"]
        # Read all the while: a full pipe would block the receiver's sink, and with it its answers.
        lines: list[dict] = []
        reader = threading.Thread(target=lambda out: lines.extend(map(json.loads, out)), args=(receiver.stdout,))
        reader.start()
        if client == "langsmith-js":
            command = ["node", str(pathlib.Path(node_folder) / "app.mjs"), str(port)]
        else:
            command = [python, str(HERE / "app.py"), client, str(port)]
        app = subprocess.run(command, env=environment(client, port), stdout=subprocess.PIPE, text=True, timeout=240)
        receiver.stdin.close()
        reader.join()
    if app.returncode != 0:
        raise SystemExit(f"{client}: the app ended with {app.returncode}")
    return [json.loads(line) for line in app.stdout.splitlines()], lines[:-1], lines[-1]["loss"]


def newest(spans: list[dict]) -> list[dict]:
    """Of a span that came twice the last version, as a store keeps it."""
    return list({(s["trace_id"], s["span_id"], s["uuid"]): s for s in spans}.values())


def received_requests(spans: list[dict]) -> list[dict[str, Any]]:
    """Each trace as (kind, nearest enclosing kind) pairs, duration and tokens, in order of start."""
    by_id = {(s["trace_id"], s["span_id"]): s for s in spans}

    def is_root(span: dict) -> bool:
        return (span["trace_id"], span["parent_id"]) not in by_id

    def kind_of(span: dict) -> str:
        if span["type"] in KINDS:
            return span["type"]
        return "root" if is_root(span) else ""

    traces: dict[str, dict[str, Any]] = {}
    for span in sorted(spans, key=lambda s: s["start_unix_ns"]):
        trace = traces.setdefault(span["trace_id"], {"spans": [], "duration_ns": 0, "tokens": [0, 0], "start": span["start_unix_ns"]})
        if is_root(span):
            trace["duration_ns"] = max(trace["duration_ns"], span["end_unix_ns"] - span["start_unix_ns"])
        if span["input_tokens"] >= 0:
            trace["tokens"][0] += span["input_tokens"]
        if span["output_tokens"] >= 0:
            trace["tokens"][1] += span["output_tokens"]
        kind = kind_of(span)
        if not kind:
            continue
        parent = span
        nearest = ""
        while not is_root(parent):
            parent = by_id[(parent["trace_id"], parent["parent_id"])]
            nearest = kind_of(parent)
            if nearest:
                break
        trace["spans"].append((kind, nearest))
    return sorted(traces.values(), key=lambda t: t["start"])


def counted(pairs: list) -> Counter:
    return Counter(f"{kind} in {parent or 'nothing'}" for kind, parent in pairs)


def differences(account: list[dict], spans: list[dict], loss: dict[str, int]) -> dict[str, Any]:
    """What differs from the app's account; empty when nothing does."""
    found: dict[str, Any] = {}
    truth = sum((counted(request["spans"]) for request in account), Counter())
    got_requests = received_requests(newest(spans))
    measured = got_requests[-len(account):] if len(got_requests) > len(account) else got_requests
    got = sum((counted(request["spans"]) for request in measured), Counter())
    n = len(account)
    missing = {key: count / n for key, count in sorted((truth - got).items())}
    extra = {key: count / n for key, count in sorted((got - truth).items())}
    if missing:
        found["missing per request"] = missing
    if extra:
        found["extra per request"] = extra
    # One warm-up request stands before those of the account.
    if len(got_requests) != n + 1:
        found["traces"] = f"{len(got_requests)} instead of {n + 1}"
    # The median request: the app's clock stands outside the client's own work, and this machine may be busy.
    errors = sorted(
        abs(seen["duration_ns"] - request["duration_ns"]) / request["duration_ns"]
        for request, seen in zip(account, measured)
    )
    if not errors or errors[len(errors) // 2] > DURATION_TOLERANCE:
        found["root duration"] = f"off by more than {DURATION_TOLERANCE:.0%}"
    # The fake model claims 10 + n tokens in and 3 out for its n-th answer; two answers a request, two for the warm-up.
    tokens = [[20 + (2 * i + 3) + (2 * i + 4), 6] for i in range(n)]
    if [seen["tokens"] for seen in measured] != tokens:
        found["tokens"] = "differ" if any(any(seen["tokens"]) for seen in measured) else "none sent"
    # The app's questions and answers must not be in anything stored.
    leaks = {key for span in spans for key, value in span["attributes"].items() if CONTENT.search(value)}
    if leaks:
        found["content stored"] = sorted(leaks)
    unfinished = sum(not span["complete"] for span in newest(spans))
    if unfinished:
        found["unfinished"] = unfinished
    bad = {key: count for key, count in loss.items() if key not in ("span_repeated", "span_id_collision", "attribute_cut")}
    if bad:
        found["loss"] = bad
    return found


def main() -> int:
    arguments = [a for a in sys.argv[1:] if a != "--print"]
    dump, python, node_folder, *clients = arguments
    known = json.loads((HERE / "differences.json").read_text())
    failed = 0
    for client in clients or CLIENTS:
        account, spans, loss = record(client, dump, python, node_folder)
        if "--print" in sys.argv:
            for span in spans:
                print(json.dumps(span))
        found = differences(account, spans, loss)
        expected = {key: value for key, value in known.get(client, {}).items() if key != "why"}
        verdict = "as listed" if found == expected else "NOT AS LISTED"
        failed += found != expected
        print(f"{client}: {len(newest(spans))} spans, {len(account)} requests compared, differences {verdict}: "
              f"{json.dumps(found)} loss {json.dumps(loss)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
