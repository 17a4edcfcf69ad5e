"""A small LangChain app, traced by one client library a run: app.py CLIENT PORT.

Prints one JSON line for each request: the app's own account of what ran inside it (kind and nearest enclosing kind), the
tokens that its fake model claims, and how long it took. The models are fakes: no network but the tracing.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Iterator

CLIENT = sys.argv[1]
REQUESTS = 6
STEP_S = 0.06  # each piece of work sleeps: the root lasts long enough for 5 % to mean something

# Opens a span around an embedding call, for which LangChain itself makes none: each client library's own way.
EmbeddingSpan = Callable[[], ContextManager[Any]]


class Account:
    """What the app knows to have run: (kind, nearest enclosing kind), innermost last."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.spans: list[tuple[str, str]] = []

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        self.spans.append((kind, self.stack[-1] if self.stack else ""))
        self.stack.append(kind)
        try:
            yield
        finally:
            self.stack.pop()


ACCOUNT = Account()


def use_langsmith(port: int, mode: str) -> tuple[EmbeddingSpan, Callable[[], None]]:
    """The environment has been set by the caller: nothing else is needed."""
    import langsmith

    def flush() -> None:
        from langsmith.run_trees import get_cached_client

        client = get_cached_client()
        client.flush()
        if mode != "langsmith":
            from opentelemetry import trace

            trace.get_tracer_provider().force_flush()  # type: ignore[attr-defined]

    return lambda: langsmith.trace("embed", run_type="embedding"), flush


def use_otel(port: int, instrument: str) -> tuple[EmbeddingSpan, Callable[[], None]]:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "clients"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces")))
    trace.set_tracer_provider(provider)
    attributes = {"gen_ai.operation.name": "embeddings"}
    if instrument == "openinference":
        from openinference.instrumentation.langchain import LangChainInstrumentor, get_current_span

        LangChainInstrumentor().instrument(tracer_provider=provider)

        @contextmanager
        def embedding() -> Iterator[None]:
            # OpenInference does not attach its spans: its own function finds the one to hang under.
            parent = get_current_span()
            context = trace.set_span_in_context(parent) if parent else None
            with trace.get_tracer("app").start_as_current_span(
                "embed", context=context, attributes={"openinference.span.kind": "EMBEDDING"}
            ):
                yield

        return embedding, provider.force_flush
    if instrument == "openllmetry":
        from opentelemetry.instrumentation.langchain import LangchainInstrumentor

        LangchainInstrumentor().instrument(tracer_provider=provider)
        attributes = {"llm.request.type": "embedding"}
    return (
        lambda: trace.get_tracer("app").start_as_current_span("embed", attributes=attributes),
        provider.force_flush,
    )


def make_app(embedding_span: EmbeddingSpan, manual: Callable[..., ContextManager[Any]]) -> Callable[[str], Any]:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import tool

    def answers() -> Iterator[AIMessage]:
        n = 0
        while True:
            n += 1
            with ACCOUNT.span("llm"):
                time.sleep(STEP_S)
            yield AIMessage(
                content=f"answer {n}",
                usage_metadata={"input_tokens": 10 + n, "output_tokens": 3, "total_tokens": 13 + n},
                response_metadata={"model_name": "fake-1", "finish_reason": "stop"},
            )

    model = GenericFakeChatModel(messages=answers())

    class Shelf(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
            with ACCOUNT.span("retriever"):
                with embedding_span(), ACCOUNT.span("embedding"):
                    time.sleep(STEP_S)
                time.sleep(STEP_S)
            return [Document(page_content=f"about {query}")]

    shelf = Shelf()

    @tool
    def lookup(word: str) -> str:
        """Looks a word up."""
        with ACCOUNT.span("tool"):
            time.sleep(STEP_S)
        return word.upper()

    def ask(question: str) -> str:
        with manual("retrieval", "retrieval shelf"):
            documents = shelf.invoke(question)
        with manual("chat", "chat fake-1") as span:
            draft = model.invoke([("human", f"{question} {documents[0].page_content}")])
            note(span, draft)
        with manual("execute_tool", "execute_tool lookup"):
            word = lookup.invoke({"word": str(draft.content)})
        with manual("chat", "chat fake-1") as span:
            last = model.invoke([("human", word)])
            note(span, last)
        return str(last.content)

    def note(span: Any, message: AIMessage) -> None:
        if span is not None and message.usage_metadata:
            span.set_attribute("gen_ai.usage.input_tokens", message.usage_metadata["input_tokens"])
            span.set_attribute("gen_ai.usage.output_tokens", message.usage_metadata["output_tokens"])

    chain = RunnableLambda(ask).with_config(run_name="ask")

    def request(question: str) -> Any:
        with manual("invoke_workflow", "ask"):
            return chain.invoke(question)

    return request


def main() -> None:
    port = int(sys.argv[2])
    manual: Callable[..., ContextManager[Any]] = lambda operation, name: nullcontext()
    if CLIENT in ("langsmith", "langsmith-otel", "langsmith-hybrid"):
        embedding_span, flush = use_langsmith(port, CLIENT)
    else:
        embedding_span, flush = use_otel(port, CLIENT)
        if CLIENT == "otel":  # the SDK alone: the app names its work itself, by the GenAI conventions
            from opentelemetry import trace

            manual = lambda operation, name: trace.get_tracer("app").start_as_current_span(
                name, attributes={"gen_ai.operation.name": operation}
            )
    request = make_app(embedding_span, manual)
    request("warm up")  # imports and first connections are not what is compared
    for i in range(REQUESTS):
        ACCOUNT.spans = []
        started = time.perf_counter_ns()
        with ACCOUNT.span("root"):
            request(f"question {i}")
        duration_ns = time.perf_counter_ns() - started
        print(json.dumps({"spans": ACCOUNT.spans, "duration_ns": duration_ns}), flush=True)
    flush()


main()
