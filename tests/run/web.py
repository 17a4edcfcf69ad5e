"""A web service whose waits are known. Each answer names its trace, its process and what it measured by itself.

/async sleeps 20 ms on the loop; /thread sleeps 20 ms in a thread of the default pool, in a span `work`; /sync is an
endpoint that anyio runs in one of two worker threads, where it sleeps 20 ms: further ones wait for a free worker.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator

import anyio.to_thread
from fastapi import FastAPI, Request
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

if not isinstance(trace.get_tracer_provider(), TracerProvider):
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=200))
    trace.set_tracer_provider(provider)
tracer = trace.get_tracer("web")


@asynccontextmanager
async def two_workers(_: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = 2
    yield


app = FastAPI(lifespan=two_workers)


class Traced:
    """One span a request, around all that the framework does."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.inner(scope, receive, send)
        with tracer.start_as_current_span("request " + scope["path"]) as span:
            scope["span"], scope["began_ns"] = span, time.monotonic_ns()
            await self.inner(scope, receive, send)


app.add_middleware(Traced)


def answer(request: Request, waited_ns: int = 0) -> dict[str, Any]:
    trace_id = request.scope["span"].get_span_context().trace_id
    loop = type(asyncio.get_event_loop_policy()).__module__
    return {"trace": f"{trace_id:032x}", "pid": os.getpid(), "waited_ns": waited_ns, "loop": loop}


@app.get("/async")
async def on_the_loop(request: Request) -> dict[str, Any]:
    await asyncio.sleep(0.02)
    return answer(request)


def work() -> None:
    with tracer.start_as_current_span("work"):
        time.sleep(0.02)


@app.get("/thread")
async def in_the_pool(request: Request) -> dict[str, Any]:
    await asyncio.to_thread(work)
    return answer(request)


@app.get("/sync", response_model=None)  # with a model the answer would need a worker once more
def in_a_worker(request: Request) -> dict[str, Any]:
    waited_ns = time.monotonic_ns() - request.scope["began_ns"]
    with tracer.start_as_current_span("work"):
        time.sleep(0.02)
    return answer(request, waited_ns)
