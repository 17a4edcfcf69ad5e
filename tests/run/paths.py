"""Requests whose critical path is known by construction, REPEAT of each shape, one after the other, traced by the
OpenTelemetry SDK; those that the machine delayed are served again. Steps on the path time themselves. The file TRUTH
gets one JSON line a request: its trace, its shape, its span's duration, how long it took by another clock, the CPU time of
its thread for it (`worked`), and for each span on the path how long it slept (asked for, until it went on) and computed,
in seconds."""

import asyncio
import collections
import contextlib
import json
import sys
import time
from typing import AsyncIterator, Awaitable, Callable

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("paths")

ROOT = "request"


class Truth:
    """What the request itself saw of the steps that it had to wait for."""

    def __init__(self) -> None:
        self.asked: dict[str, float] = collections.defaultdict(float)
        self.slept: dict[str, float] = collections.defaultdict(float)
        self.computed: dict[str, float] = collections.defaultdict(float)

    async def sleep(self, span: str, seconds: float) -> None:
        begin = time.perf_counter()
        await asyncio.sleep(seconds)
        self.slept[span] += time.perf_counter() - begin
        self.asked[span] += seconds

    def compute(self, span: str, seconds: float) -> None:
        begin = time.thread_time()
        while time.thread_time() - begin < seconds:
            pass
        self.computed[span] += time.thread_time() - begin


OFF = Truth()  # steps that nobody waits for


async def child(truth: Truth, name: str, seconds: float) -> str:
    with tracer.start_as_current_span(name):
        await truth.sleep(name, seconds)
    return name


async def chunks(truth: Truth, count: int, closing_seconds: float = 0, closing: Truth = OFF) -> AsyncIterator[int]:
    """A stream whose span is open until the end, and current only while a chunk is made."""
    span = tracer.start_span("stream")
    try:
        for i in range(count):
            with trace.use_span(span):
                await truth.sleep("stream", 0.04)
                truth.compute("stream", 0.01)
            yield i
    finally:
        with trace.use_span(span):
            if closing_seconds:
                await closing.sleep("stream", closing_seconds)
        span.end()


async def as_completed(truth: Truth) -> None:
    """Results are consumed faster than they come: the path is the last one."""
    tasks = [asyncio.create_task(child(truth if name == "c" else OFF, name, seconds))
             for name, seconds in (("a", 0.04), ("b", 0.08), ("c", 0.16))]
    for result in asyncio.as_completed(tasks):
        name = await result
        (truth if name == "c" else OFF).compute(ROOT, 0.02)


async def as_completed_slow_consumer(truth: Truth) -> None:
    """The second result comes while the first is consumed: nobody waits for it."""
    tasks = [asyncio.create_task(child(truth if name == "a" else OFF, name, seconds))
             for name, seconds in (("a", 0.04), ("b", 0.08))]
    for result in asyncio.as_completed(tasks):
        await result
        await truth.sleep(ROOT, 0.08)


async def slow_consumer(truth: Truth) -> None:
    async for _ in chunks(truth, 3):
        await truth.sleep(ROOT, 0.04)
        truth.compute(ROOT, 0.01)


async def slow_consumer_of_a_task(truth: Truth) -> None:
    """The stream comes out of a task of its own: its consumer waits for the first chunk only."""
    queue: asyncio.Queue[int | None] = asyncio.Queue()

    async def produce() -> None:
        with tracer.start_as_current_span("stream"):
            for i in range(3):
                await (OFF if i else truth).sleep("stream", 0.04)
                queue.put_nowait(i)
        queue.put_nowait(None)

    producer = asyncio.create_task(produce())
    while await queue.get() is not None:
        await truth.sleep(ROOT, 0.08)
    await producer


async def left_early(truth: Truth) -> None:
    """The loop closes the generator in a task of its own; its span outlives the request."""
    async for i in chunks(truth, 5, closing_seconds=0.3):
        await truth.sleep(ROOT, 0.04)
        if i == 1:
            break
    await truth.sleep(ROOT, 0.06)


async def left_early_and_closed(truth: Truth) -> None:
    """The request awaits the generator's closing."""
    async with contextlib.aclosing(chunks(truth, 5, closing_seconds=0.06, closing=truth)) as stream:
        async for i in stream:
            await truth.sleep(ROOT, 0.04)
            if i == 1:
                break
    await truth.sleep(ROOT, 0.04)


async def background_task(truth: Truth) -> None:
    """A task with a span of its own that outlives the request, and one that ends in time; nobody awaits them."""
    background.add(asyncio.create_task(child(OFF, "audit", 0.3)))
    background.add(asyncio.create_task(child(OFF, "count", 0.05)))
    await truth.sleep(ROOT, 0.08)
    truth.compute(ROOT, 0.02)


async def background_job(truth: Truth) -> None:
    """A thread's job that outlives the request under the request's own span; nobody awaits it."""
    background.add(asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.3))
    await truth.sleep(ROOT, 0.08)
    truth.compute(ROOT, 0.02)


background: set[asyncio.Future] = set()
SHAPES = [as_completed, as_completed_slow_consumer, slow_consumer, slow_consumer_of_a_task, left_early,
          left_early_and_closed, background_task, background_job]
OUTLIVED = [left_early, background_task, background_job]


# What is done beside the path ends at least this long before it would come onto it. On a machine that delays a request
# by more, the request is another than the one described.
SLACK_S = 0.03
TRIES_MAX = 6  # for each request wanted


async def serve(shape: Callable[[Truth], Awaitable[None]]) -> dict[str, object] | None:
    """One request; None when it was delayed beyond the slack."""
    truth = Truth()
    begin, cpu_begin, off_begin = time.perf_counter(), time.thread_time(), sum(OFF.computed.values())
    with tracer.start_as_current_span(ROOT) as root:
        await shape(truth)
    worked = time.thread_time() - cpu_begin - (sum(OFF.computed.values()) - off_begin)
    seconds = time.perf_counter() - begin
    if shape in OUTLIVED:
        await asyncio.sleep(0.35)  # what the request left behind ends
    if seconds > sum(truth.asked.values()) + sum(truth.computed.values()) + SLACK_S:
        return None
    return {"trace": f"{root.get_span_context().trace_id:032x}", "shape": shape.__name__,
            "duration_ns": root.end_time - root.start_time, "seconds": seconds, "worked": worked,
            "asked": truth.asked, "slept": truth.slept, "computed": truth.computed}


async def main(repeat: int, truth_file: str) -> None:
    with open(truth_file, "w") as out:
        for shape in SHAPES:
            served = 0
            for _ in range(repeat * TRIES_MAX):
                request = await serve(shape)
                if request:
                    print(json.dumps(request), file=out)
                    served += 1
                    if served == repeat:
                        break
    await asyncio.gather(*background)


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
