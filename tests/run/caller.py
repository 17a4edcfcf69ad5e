"""An asyncio service each of whose requests opens a connection of its own to a peer: caller.py HOST PORT REQUESTS.
Prints each request's trace id."""

import asyncio
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("caller")


async def ask(host: str, port: int) -> None:
    with tracer.start_as_current_span("ask") as span:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"?")
        assert await reader.read() == b"!"
        writer.close()
    print(f"{span.get_span_context().trace_id:032x}")


async def main(host: str, port: int, requests: int) -> None:
    tasks = []
    for _ in range(requests):
        tasks.append(asyncio.create_task(ask(host, port)))
        await asyncio.sleep(0.012)
    await asyncio.gather(*tasks)


asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
