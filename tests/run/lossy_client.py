"""An asyncio client of one connection, traced by the OpenTelemetry SDK: COUNT exchanges with PORT, each a span `ask`.
Writes each exchange's trace id and length by its own clock to FILE, one JSON line each."""

import asyncio
import json
import sys
import time

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("client")


async def main(port: int, count: int, path: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with open(path, "w") as log:
        for _ in range(count):
            with tracer.start_as_current_span("ask") as span:
                start = time.perf_counter()
                writer.write(b"q" * 400)
                await reader.readexactly(400)
                seconds = time.perf_counter() - start
            log.write(json.dumps({"trace": f"{span.get_span_context().trace_id:032x}", "ms": 1e3 * seconds}) + "\n")
            await asyncio.sleep(0.005)


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
provider.shutdown()
