"""A service that takes the same time for every request: REQUESTS of them, 10 ms apart, SECONDS each."""

import asyncio
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("slow_for_all")


async def ask(seconds: float) -> None:
    with tracer.start_as_current_span("ask"):
        with tracer.start_as_current_span("call model"):
            await asyncio.sleep(seconds)


async def main(requests: int, seconds: float) -> None:
    tasks = []
    for _ in range(requests):
        tasks.append(asyncio.create_task(ask(seconds)))
        await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)


asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
