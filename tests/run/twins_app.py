"""LangChain requests that two tracers see: twins_app.py MODE REQUESTS. MODE: openinference or openllmetry (an
instrumentation beside LangSmith's tracing), hybrid (LangSmith's own second export), server (LangSmith's tracing below
the spans of an OpenTelemetry server). 16 requests at once; each chain has steps of one name, and one inside another."""

import asyncio
import random
import sys

from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langsmith import traceable
from langsmith.run_trees import get_cached_client
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

mode, requests = sys.argv[1], int(sys.argv[2])
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
if mode == "openinference":
    from openinference.instrumentation.langchain import LangChainInstrumentor

    LangChainInstrumentor().instrument(tracer_provider=provider)
elif mode == "openllmetry":
    from opentelemetry.instrumentation.langchain import LangchainInstrumentor

    LangchainInstrumentor().instrument(tracer_provider=provider)

draw = random.Random(7)


async def step(question: str) -> str:
    await asyncio.sleep(draw.uniform(0.002, 0.02))
    return question


@tool
async def lookup(word: str) -> str:
    """Looks a word up."""
    await asyncio.sleep(draw.uniform(0.002, 0.02))
    return word


@traceable(run_type="tool")
async def only_langsmith(word: str) -> str:
    await asyncio.sleep(0.002)
    return word


async def work(question: str) -> str:
    inner = RunnableLambda(step).with_config(run_name="step")
    outer = (inner | inner).with_config(run_name="step")
    for _ in range(2):
        question = await outer.ainvoke(question)
    await only_langsmith(question)
    return str(await lookup.ainvoke({"word": question}))


chain = RunnableLambda(work).with_config(run_name="chain")


async def request(i: int, limit: asyncio.Semaphore) -> None:
    async with limit:
        with trace.get_tracer("server").start_as_current_span("POST /ask", kind=trace.SpanKind.SERVER):
            await chain.ainvoke(f"question {i}")


async def main() -> None:
    limit = asyncio.Semaphore(16)
    await asyncio.gather(*(request(i, limit) for i in range(requests)))


asyncio.run(main())
get_cached_client().flush()
provider.force_flush()
