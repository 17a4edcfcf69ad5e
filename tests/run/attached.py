"""A service that somebody else started: from the first line on its input on it serves a request every 20 ms, and prints
now and then how many it has served. Its spans are named by its argument and go where its environment says. Ends with
its input."""

import asyncio
import sys
import threading

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=1), schedule_delay_millis=200))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("attached")


async def ask() -> None:
    with tracer.start_as_current_span(sys.argv[1]):
        await asyncio.sleep(0.01)


async def main() -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    served = 0
    while not ended.is_set():
        await asyncio.gather(ask(), asyncio.sleep(0.02))
        served += 1
        if served % 25 == 0:
            print(served, flush=True)


asyncio.run(main())
