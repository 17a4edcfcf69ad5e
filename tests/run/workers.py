"""Two processes made by multiprocessing, each with a loop and requests of its own: workers.py fork|spawn REQUESTS OUT."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
import threading
import time
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def worker(requests: int, answers: Any) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("worker")

    def work() -> None:
        with tracer.start_as_current_span("work"):
            time.sleep(0.02)

    async def ask(path: str) -> None:
        with tracer.start_as_current_span("request " + path) as span:
            await (asyncio.sleep(0.02) if path == "/async" else asyncio.to_thread(work))
        trace_id = f"{span.get_span_context().trace_id:032x}"
        answers.put({"trace": trace_id, "pid": os.getpid(), "path": path, "waited_ns": 0})

    async def main() -> None:
        await asyncio.sleep(1)  # until the process has been found from outside
        for _ in range(requests):
            await asyncio.gather(ask("/async"), ask("/thread"))

    asyncio.run(main())
    provider.shutdown()


def parent(how: str, requests: int, out: str) -> None:
    context = multiprocessing.get_context(how)

    async def something() -> None:
        await asyncio.sleep(0.01)

    asyncio.run(something())  # the parent has a ring of its own, which a forked child must not go on with
    answers = context.SimpleQueue()
    processes = [context.Process(target=worker, args=(requests, answers)) for _ in range(2)]
    collected: list[dict[str, Any]] = []
    reader = threading.Thread(target=lambda: collected.extend(answers.get() for _ in range(4 * requests)))
    for process in processes:
        process.start()
    reader.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0, process.exitcode
    reader.join()
    with open(out, "w") as file:
        file.writelines(json.dumps(answer) + "\n" for answer in collected)


if __name__ == "__main__":
    parent(sys.argv[1], int(sys.argv[2]), sys.argv[3])
