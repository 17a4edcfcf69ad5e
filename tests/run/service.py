"""A small asyncio service with known waits, traced by the OpenTelemetry SDK: REQUESTS requests, every tenth of which
hands a pure-Python computation to a worker thread."""

import asyncio
import sys
import time

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("service")


def chunk(seconds: float) -> None:
    with tracer.start_as_current_span("chunk"):
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass


async def ask(with_upload: bool) -> None:
    with tracer.start_as_current_span("ask"):
        with tracer.start_as_current_span("retrieve"):
            await asyncio.sleep(0.01)
        if with_upload:
            await asyncio.to_thread(chunk, 0.06)


async def main(requests: int) -> None:
    tasks = []
    for i in range(requests):
        tasks.append(asyncio.create_task(ask(i % 10 == 9)))
        await asyncio.sleep(0.012)
    await asyncio.gather(*tasks)


asyncio.run(main(int(sys.argv[1])))
