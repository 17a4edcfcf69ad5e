"""A small web app for the injection tests: each answer says which span it worked for and what its thread published."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import published
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

if not isinstance(trace.get_tracer_provider(), TracerProvider):
    trace.set_tracer_provider(TracerProvider())
tracer = trace.get_tracer("app")
app = FastAPI()


def seen(span: Any, inside: bytes | None, after: bytes | None) -> dict[str, Any]:
    own = span.get_span_context().span_id.to_bytes(8, "big").hex()
    return {
        "pid": os.getpid(),
        "span": own,
        "inside": inside.hex() if inside else None,
        "after": after.hex() if after else None,
        "loop": type(asyncio.get_event_loop_policy()).__module__,
    }


@app.get("/sync")
def sync_endpoint() -> dict[str, Any]:
    with tracer.start_as_current_span("sync") as span:
        inside = published.span_id()
    return seen(span, inside, published.span_id())


@app.get("/async")
async def async_endpoint() -> dict[str, Any]:
    with tracer.start_as_current_span("async") as span:
        await asyncio.sleep(0.001)
        inside = published.span_id()
    return seen(span, inside, published.span_id())


@app.get("/thread")
async def thread_endpoint() -> dict[str, Any]:
    with tracer.start_as_current_span("thread") as span:
        inside = await asyncio.to_thread(published.span_id)
    return seen(span, inside, published.span_id())
