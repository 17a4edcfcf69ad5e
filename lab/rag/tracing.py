"""The service's tracing, chosen by LAB_TRACER; endpoints come from the standard
OpenTelemetry and LangSmith environment variables."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI

Handler = Callable[..., Awaitable[Any]]
TRACERS = ("openllmetry", "openinference", "langsmith", "off")


def chosen() -> str:
    """openllmetry (default), openinference, langsmith or off."""
    tracer = os.environ.get("LAB_TRACER", "openllmetry")
    if tracer not in TRACERS:
        raise SystemExit(f"LAB_TRACER={tracer}: must be one of {', '.join(TRACERS)}")
    return tracer


def start(app: FastAPI) -> Callable[[], None]:
    """Switches the chosen tracer on; the result flushes what is left."""
    tracer = chosen()
    if tracer == "off":
        os.environ["LANGSMITH_TRACING"] = "false"
        return lambda: None
    if tracer == "langsmith":
        return _start_langsmith()
    return _start_opentelemetry(app, tracer)


def _start_langsmith() -> Callable[[], None]:
    os.environ.setdefault("LANGSMITH_TRACING", "true")
    os.environ.setdefault("LANGSMITH_API_KEY", "lab")
    from langchain_core.tracers.langchain import wait_for_all_tracers

    return wait_for_all_tracers


def _start_opentelemetry(app: FastAPI, tracer: str) -> Callable[[], None]:
    # One tracer at a time, whatever the surroundings would switch on.
    os.environ["LANGSMITH_TRACING"] = "false"
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "rag"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    FastAPIInstrumentor.instrument_app(app, exclude_spans=["receive", "send"])
    if tracer == "openllmetry":
        from opentelemetry.instrumentation.langchain import LangchainInstrumentor

        LangchainInstrumentor().instrument()
    else:
        from openinference.instrumentation.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument()
    return provider.shutdown


def operation(name: str) -> Callable[[Handler], Handler]:
    """Decorates an endpoint. OpenTelemetry names the server span itself; with
    LangSmith alone this makes the root run."""

    def wrap(handler: Handler) -> Handler:
        if chosen() != "langsmith":
            return handler
        from langsmith import traceable

        # An upload does not belong into a trace.
        return traceable(
            name=name, run_type="chain", process_inputs=lambda i: {"question": i["question"].question}
        )(handler)

    return wrap
