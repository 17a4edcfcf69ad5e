"""The tracers of the table, each with a way to run a body in a span and to tell which span id a label got."""

from __future__ import annotations

import re
from datetime import timezone
from typing import Any, Awaitable, Callable

_LABEL = re.compile(r"\bs\d+\b")

NAMES = (
    "otel",
    "openinference",
    "openllmetry",
    "langsmith",
    "langsmith-otel",
    "openinference+langsmith",
    "openllmetry+langsmith",
    "openinference+threading",
)


class OtelTracer:
    """Spans made by hand with the SDK; LangChain is not instrumented."""

    by_runs = False

    def __init__(self) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        trace.set_tracer_provider(provider)
        self.tracer = trace.get_tracer("table")

    def call(self, label: str, body: Callable[[], Any]) -> Any:
        with self.tracer.start_as_current_span(label):
            return body()

    async def acall(self, label: str, body: Callable[[], Awaitable[Any]]) -> Any:
        with self.tracer.start_as_current_span(label):
            return await body()

    def end_unix_ns(self) -> dict[str, int]:
        ends = {}
        for span in self.exporter.get_finished_spans():
            found = _LABEL.search(span.name)
            if found:
                ends[found.group()] = span.end_time
        return ends

    def span_ids(self) -> dict[str, set[bytes]]:
        ids: dict[str, set[bytes]] = {}
        for span in self.exporter.get_finished_spans():
            found = _LABEL.search(span.name)
            if found:
                ids.setdefault(found.group(), set()).add(span.context.span_id.to_bytes(8, "big"))
        return ids


class _RunTracer:
    """A span is a LangChain run: the body is a lambda with the label as its run's name."""

    by_runs = True

    def call(self, label: str, body: Callable[[], Any]) -> Any:
        from langchain_core.runnables import RunnableLambda

        return RunnableLambda(lambda _: body()).invoke(None, {"run_name": label})

    async def acall(self, label: str, body: Callable[[], Awaitable[Any]]) -> Any:
        from langchain_core.runnables import RunnableLambda

        async def run(_: Any) -> Any:
            return await body()

        return await RunnableLambda(run).ainvoke(None, {"run_name": label})


class OpenInferenceTracer(_RunTracer):
    def __init__(self) -> None:
        self._spans = OtelTracer()
        from openinference.instrumentation.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument()
        self.span_ids, self.end_unix_ns = self._spans.span_ids, self._spans.end_unix_ns


class OpenLlmetryTracer(_RunTracer):
    def __init__(self) -> None:
        self._spans = OtelTracer()
        from opentelemetry.instrumentation.langchain import LangchainInstrumentor

        LangchainInstrumentor().instrument()
        self.span_ids, self.end_unix_ns = self._spans.span_ids, self._spans.end_unix_ns


class LangSmithTracer(_RunTracer):
    """LangSmith alone. Its client's calls are noted instead of sent."""

    def __init__(self) -> None:
        import langsmith

        self._names: dict[bytes, str] = {}
        self._ends: dict[bytes, int] = {}

        def create_run(_: Any, name: str, *__: Any, **fields: Any) -> None:
            self._names[fields["id"].bytes] = name

        def update_run(_: Any, run_id: Any, *__: Any, end_time: Any = None, **___: Any) -> None:
            if end_time is not None:
                aware = end_time if end_time.tzinfo else end_time.replace(tzinfo=timezone.utc)
                self._ends[run_id.bytes] = int(aware.timestamp() * 1e6) * 1000

        langsmith.Client.create_run = create_run  # type: ignore[method-assign, assignment]
        langsmith.Client.update_run = update_run  # type: ignore[method-assign, assignment]

    def end_unix_ns(self) -> dict[str, int]:
        return {name: self._ends[uuid] for uuid, name in self._names.items() if uuid in self._ends}

    def span_ids(self) -> dict[str, set[bytes]]:
        ids: dict[str, set[bytes]] = {}
        for uuid, name in self._names.items():
            found = _LABEL.search(name)
            if found:
                ids.setdefault(found.group(), set()).add(uuid[8:])
        return ids


class HybridTracer(_RunTracer):
    """OpenTelemetry and LangSmith trace the same runs: a run is OpenTelemetry's, unless only LangSmith has it."""

    def __init__(self, otel: Callable[[], Any]) -> None:
        self._langsmith, self._otel = LangSmithTracer(), otel()
        self.end_unix_ns = self._otel.end_unix_ns

    def span_ids(self) -> dict[str, set[bytes]]:
        return self._langsmith.span_ids() | self._otel.span_ids()


class ThreadingTracer(OpenInferenceTracer):
    """With OpenTelemetry's instrumentations for threads and asyncio, which carry its own context along: the outer
    span's, because OpenInference attaches none."""

    def __init__(self) -> None:
        super().__init__()
        from opentelemetry.instrumentation.asyncio import AsyncioInstrumentor
        from opentelemetry.instrumentation.threading import ThreadingInstrumentor

        ThreadingInstrumentor().instrument()
        AsyncioInstrumentor().instrument()

    def call(self, label: str, body: Callable[[], Any]) -> Any:
        return self._spans.call("outside", lambda: super(ThreadingTracer, self).call(label, body))

    async def acall(self, label: str, body: Callable[[], Awaitable[Any]]) -> Any:
        return await self._spans.acall("outside", lambda: super(ThreadingTracer, self).acall(label, body))


def make(name: str) -> Any:
    return {
        "otel": OtelTracer,
        "openinference": OpenInferenceTracer,
        "openllmetry": OpenLlmetryTracer,
        "langsmith": LangSmithTracer,
        "langsmith-otel": LangSmithTracer,
        "openinference+langsmith": lambda: HybridTracer(OpenInferenceTracer),
        "openllmetry+langsmith": lambda: HybridTracer(OpenLlmetryTracer),
        "openinference+threading": ThreadingTracer,
    }[name]()
