"""An asyncio service with a large heap, traced by the OpenTelemetry SDK: REQUESTS requests, every tenth of which collects
garbage in its step `tidy`, while the others stand ready at the loop."""

import asyncio
import gc
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("service")
heap = [[i] for i in range(600_000)]


async def ask(tidies: bool) -> None:
    with tracer.start_as_current_span("ask"):
        await asyncio.sleep(0.004)
        with tracer.start_as_current_span("tidy"):
            if tidies:
                gc.collect()
        await asyncio.sleep(0.004)


async def main(requests: int) -> None:
    tasks = []
    for i in range(requests):
        tasks.append(asyncio.create_task(ask(i % 10 == 9)))
        await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)


asyncio.run(main(int(sys.argv[1])))
