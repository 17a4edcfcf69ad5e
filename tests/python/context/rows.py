"""One workload a row of the table. Each runs rounds until `steps.log` holds enough steps.

`t.call(label, body)` runs body in a span called label; `step(label)` works for that span.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, AsyncIterator, Awaitable, Callable, Iterator, TypedDict

import steps
from steps import new_label, step

WIDTH = 4  # tasks, batch inputs or threads at a time


def plain(t: Any) -> None:
    a, b, c = new_label(), new_label(), new_label()

    def outer() -> None:
        step(a)
        t.call(b, lambda: (step(b), t.call(c, lambda: step(c)), step(b)))
        step(a)
        with contextlib.suppress(ValueError):
            t.call(new, lambda: fail(new))
        step(a)

    def fail(label: str) -> None:
        step(label)
        raise ValueError(label)

    new = new_label()
    t.call(a, outer)


async def tasks(t: Any) -> None:
    """Tasks that take turns on one thread, each with a child, sharing a lock."""
    lock = asyncio.Lock()

    async def one() -> None:
        a, b = new_label(), new_label()

        async def child() -> None:
            step(b)
            async with lock:
                await asyncio.sleep(0)
                step(b)

        async def parent() -> None:
            step(a)
            await asyncio.sleep(0.001)
            step(a)
            await t.acall(b, child)
            step(a)
            await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0.0005))
            step(a)

        await t.acall(a, parent)

    await asyncio.gather(*(one() for _ in range(WIDTH)))


def _lambda(t: Any, label: str, extra: Callable[[], Any] | None = None) -> Any:
    """A runnable whose sync body steps in its run, or in its own span where runs have none."""
    from langchain_core.runnables import RunnableLambda

    def work(value: Any) -> Any:
        step(label)
        if extra is not None:
            extra()
            step(label)
        return value

    body = work if t.by_runs else lambda value: t.call(label, lambda: work(value))
    return RunnableLambda(body).with_config(run_name=label)


def _alambda(t: Any, label: str) -> Any:
    from langchain_core.runnables import RunnableLambda

    async def work(value: Any) -> Any:
        step(label)
        await asyncio.sleep(0.0005)
        step(label)
        return value

    async def spanned(value: Any) -> Any:
        return await t.acall(label, lambda: work(value))

    return RunnableLambda(work if t.by_runs else spanned).with_config(run_name=label)


async def ainvoke(t: Any) -> None:
    async def one() -> None:
        outer = new_label()

        async def parent() -> None:
            step(outer)
            chain = _alambda(t, new_label()) | _lambda(t, new_label()) | _alambda(t, new_label())
            await chain.ainvoke(1)
            step(outer)

        await t.acall(outer, parent)

    await asyncio.gather(*(one() for _ in range(WIDTH)))


def batch(t: Any) -> None:
    outer = new_label()

    def parent() -> None:
        step(outer)
        _named(t).batch(*_inputs())
        step(outer)
        (_lambda(t, new_label()) | _lambda(t, new_label())).batch([1])
        step(outer)

    t.call(outer, parent)


async def abatch(t: Any) -> None:
    outer = new_label()

    async def parent() -> None:
        step(outer)
        await _anamed(t).abatch(*_inputs())
        step(outer)
        await _named(t).abatch(*_inputs())
        step(outer)

    await t.acall(outer, parent)


def _inputs() -> tuple[list[str], list[dict[str, Any]]]:
    labels = [new_label() for _ in range(WIDTH)]
    return labels, [{"run_name": label} for label in labels]


def _named(t: Any) -> Any:
    """A runnable whose input is its label."""
    from langchain_core.runnables import RunnableLambda

    return RunnableLambda(step if t.by_runs else lambda label: t.call(label, lambda: step(label)))


def _anamed(t: Any) -> Any:
    from langchain_core.runnables import RunnableLambda

    async def work(label: str) -> None:
        step(label)
        await asyncio.sleep(0.0005)
        step(label)

    async def spanned(label: str) -> None:
        await t.acall(label, lambda: work(label))

    return RunnableLambda(work if t.by_runs else spanned)


def _generators(t: Any, chunks: int = 3) -> Any:
    """A chain of two generators and a streaming chat model, each at work for every chunk."""
    from langchain_core.runnables import RunnableGenerator

    first, second = new_label(), new_label()

    def work(label: str) -> None:
        step(label) if t.by_runs else t.call(label, lambda: step(label))

    def source(_: Iterator[Any]) -> Iterator[str]:
        for n in range(chunks):
            work(first)
            yield str(n)

    def relay(parts: Iterator[str]) -> Iterator[str]:
        for part in parts:
            work(second)
            yield part

    async def asource(_: AsyncIterator[Any]) -> AsyncIterator[str]:
        for n in range(chunks):
            work(first)
            await asyncio.sleep(0)
            work(first)
            yield str(n)

    async def arelay(parts: AsyncIterator[str]) -> AsyncIterator[str]:
        async for part in parts:
            work(second)
            yield part

    return RunnableGenerator(source, asource).with_config(run_name=first) | RunnableGenerator(
        relay, arelay
    ).with_config(run_name=second)


def _chat(t: Any, label: str, chunks: int = 3) -> Any:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

    def work() -> None:
        step(label) if t.by_runs else t.call(label, lambda: step(label))

    class Chat(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "chat"

        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            work()
            return ChatResult(generations=[ChatGeneration(message=AIMessage("done"))])

        def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
            for n in range(chunks):
                work()
                yield ChatGenerationChunk(message=AIMessageChunk(str(n)))

        async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
            for n in range(chunks):
                work()
                await asyncio.sleep(0)
                work()
                yield ChatGenerationChunk(message=AIMessageChunk(str(n)))

    Chat.__name__ = label  # OpenLLMetry names a model's span by its class
    return Chat()


def stream(t: Any) -> None:
    outer, model = new_label(), new_label()

    def parent() -> None:
        step(outer)
        for _ in _generators(t).stream(1):
            step(outer)
        step(outer)
        for _ in _chat(t, model).stream("x", {"run_name": model}):
            step(outer)
        step(outer)

    t.call(outer, parent)


async def astream(t: Any) -> None:
    async def one() -> None:
        outer, model = new_label(), new_label()

        async def parent() -> None:
            step(outer)
            async for _ in _generators(t).astream(1):
                step(outer)
                await asyncio.sleep(0)
                step(outer)
            async for _ in _chat(t, model).astream("x", {"run_name": model}):
                step(outer)
            step(outer)

        await t.acall(outer, parent)

    await asyncio.gather(*(one() for _ in range(WIDTH)))


def early_stop(t: Any) -> None:
    outer, other, model = new_label(), new_label(), new_label()

    def parent() -> None:
        for n, _ in enumerate(_generators(t, 5).stream(1)):
            step(outer)
            if n == 1:
                break
        step(outer)
        abandoned = _chat(t, model, 5).stream("x", {"run_name": model})
        next(abandoned)
        step(outer)
        t.call(other, lambda: (step(other), abandoned.close(), step(other)))
        step(outer)
        asyncio.run(stop())
        step(outer)

    async def stop() -> None:
        async for _ in _generators(t, 5).astream(1):
            step(outer)
            break
        step(outer)
        await asyncio.sleep(0)
        step(outer)

    t.call(outer, parent)


def _left_open() -> list[Callable[[], Awaitable[Any]]]:
    """Runs that LangChain does not end when they are cancelled: while they start, in a retriever, in a model."""
    from langchain_core.callbacks import AsyncCallbackHandler
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.outputs import ChatResult
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableLambda

    class Handler(AsyncCallbackHandler):
        async def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
            await asyncio.sleep(60)

    class Retriever(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            return []

        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            await asyncio.sleep(60)
            return []

    class Model(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "model"

        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            return ChatResult(generations=[])

        async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
            await asyncio.sleep(60)
            return ChatResult(generations=[])

    return [
        lambda: RunnableLambda(lambda value: value).ainvoke(1, {"callbacks": [Handler()]}),
        lambda: Retriever().ainvoke("x"),
        lambda: Model().ainvoke("x"),
    ]


async def cancel(t: Any) -> None:
    outer, left_open = new_label(), _left_open()

    async def one() -> None:
        label = new_label()

        async def victim() -> None:
            step(label)
            try:
                await asyncio.sleep(60)
            finally:
                step(label)

        task = asyncio.ensure_future(t.acall(label, victim))
        await asyncio.sleep(0.005)
        step(outer)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        step(outer)
        slow = new_label()

        async def slowly() -> None:
            step(slow)
            await asyncio.sleep(60)

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(t.acall(slow, slowly), 0.004)
        step(outer)
        for begin in left_open:
            with contextlib.suppress(asyncio.TimeoutError):
                async with asyncio.timeout(0.004):
                    await begin()
            step(outer)

    async def parent() -> None:
        await asyncio.gather(*(one() for _ in range(WIDTH)))
        step(outer)

    await t.acall(outer, parent)


async def _in_threads(t: Any, start: Callable[[Callable[[], None]], Any]) -> None:
    async def one() -> None:
        outer, inner = new_label(), new_label()

        def in_thread() -> None:
            step(outer)
            t.call(inner, lambda: step(inner))
            step(outer)

        async def parent() -> None:
            step(outer)
            await start(in_thread)
            step(outer)

        await t.acall(outer, parent)

    await asyncio.gather(*(one() for _ in range(WIDTH)))


async def to_thread(t: Any) -> None:
    await _in_threads(t, asyncio.to_thread)


async def run_in_executor(t: Any) -> None:
    loop = asyncio.get_running_loop()
    await _in_threads(t, lambda body: loop.run_in_executor(None, body))


async def anyio(t: Any) -> None:
    import anyio.to_thread as threads

    await _in_threads(t, threads.run_sync)


def thread_pool(t: Any) -> None:
    outer = new_label()

    def parent() -> None:
        with ThreadPoolExecutor(WIDTH) as pool:
            waiting = [pool.submit(in_thread, new_label()) for _ in range(2 * WIDTH)]
            step(outer)
            for future in waiting:
                future.result()
        step(outer)

    def in_thread(inner: str) -> None:
        step(outer)
        t.call(inner, lambda: step(inner))
        step(outer)

    t.call(outer, parent)


class Visited(TypedDict):
    seen: Annotated[list[str], operator.add]


def _graph(t: Any) -> Any:
    """Two nodes at a time between a first and a last one; the first calls a chain."""
    from langgraph.graph import END, START, StateGraph

    labels = [new_label() for _ in range(4)]

    def node(label: str) -> Callable[[Any], dict[str, list[str]]]:
        def run(state: Any) -> dict[str, list[str]]:
            def body() -> None:
                step(label)
                if label == labels[0]:
                    _lambda(t, new_label()).invoke(1)
                    step(label)

            body() if t.by_runs else t.call(label, body)
            return {"seen": [label]}

        return run

    def anode(label: str) -> Callable[[Any], Any]:
        async def run(state: Any) -> dict[str, list[str]]:
            async def body() -> None:
                step(label)
                await asyncio.sleep(0.0005)
                step(label)

            await (body() if t.by_runs else t.acall(label, body))
            return {"seen": [label]}

        return run

    def build(asynchronous: bool) -> Any:
        graph = StateGraph(Visited)
        for n, label in enumerate(labels):
            graph.add_node(label, anode(label) if asynchronous and n % 2 else node(label))
        graph.add_edge(START, labels[0])
        graph.add_edge(labels[0], labels[1])
        graph.add_edge(labels[0], labels[2])
        graph.add_edge(labels[1], labels[3])
        graph.add_edge(labels[2], labels[3])
        graph.add_edge(labels[3], END)
        return graph.compile()

    return build


def langgraph(t: Any) -> None:
    outer = new_label()

    def parent() -> None:
        step(outer)
        _graph(t)(False).invoke({"seen": []})
        step(outer)
        for _ in _graph(t)(False).stream({"seen": []}):
            step(outer)
        asyncio.run(inside())
        step(outer)

    async def inside() -> None:
        step(outer)
        await _graph(t)(True).ainvoke({"seen": []})
        step(outer)
        async for _ in _graph(t)(True).astream({"seen": []}):
            step(outer)

    t.call(outer, parent)


def tools(t: Any) -> None:
    from langchain_core.tools import StructuredTool

    outer = new_label()

    def tool(label: str) -> Any:
        def run(x: int) -> int:
            """A tool."""
            step(label) if t.by_runs else t.call(label, lambda: step(label))
            return x

        async def arun(x: int) -> int:
            """A tool."""

            async def body() -> None:
                step(label)
                await asyncio.sleep(0)
                step(label)

            await (body() if t.by_runs else t.acall(label, body))
            return x

        return run, arun

    def parent() -> None:
        step(outer)
        label = new_label()
        StructuredTool.from_function(tool(label)[0], name=label).invoke({"x": 1})
        step(outer)
        asyncio.run(inside())
        step(outer)

    async def inside() -> None:
        both, sync_only = new_label(), new_label()
        await asyncio.gather(
            StructuredTool.from_function(*tool(both), name=both).ainvoke({"x": 1}),
            StructuredTool.from_function(tool(sync_only)[0], name=sync_only).ainvoke({"x": 1}),
        )
        step(outer)

    t.call(outer, parent)


def traceable(t: Any) -> None:
    from langsmith import trace
    from langsmith import traceable as traced

    a, b, c, d, e, f, g = (new_label() for _ in range(7))

    @traced(name=b)
    def plain_child() -> None:
        step(b)
        _lambda(t, lambda_label).invoke(1)
        step(b)

    lambda_label = new_label()

    @traced(name=c)
    def generator() -> Iterator[int]:
        for n in range(3):
            step(c)
            yield n

    @traced(name=d)
    async def coroutine() -> None:
        step(d)
        await asyncio.sleep(0)
        step(d)

    @traced(name=e)
    async def agenerator() -> AsyncIterator[int]:
        for n in range(3):
            step(e)
            await asyncio.sleep(0)
            step(e)
            yield n

    @traced(name=a)
    def root() -> None:
        step(a)
        plain_child()
        step(a)
        for n in generator():
            step(a)
            if n == 1:
                break
        step(a)
        with trace(f):
            step(f)
        step(a)

    @traced(name=g)
    async def aroot() -> None:
        await asyncio.gather(coroutine(), asyncio.sleep(0))
        step(g)
        async for _ in agenerator():
            step(g)
        async with trace(h):
            step(h)
            await asyncio.sleep(0)
            step(h)
        step(g)

    h = new_label()
    root()
    asyncio.run(aroot())


# row: (workload, event loop: none, asyncio or uvloop, tracers it makes sense for: all unless named)
ROWS: dict[str, tuple[Callable[[Any], Any], str, tuple[str, ...]]] = {
    "plain": (plain, "", ()),
    "asyncio": (tasks, "asyncio", ()),
    "uvloop": (tasks, "uvloop", ()),
    "ainvoke": (ainvoke, "asyncio", ()),
    "ainvoke-uvloop": (ainvoke, "uvloop", ()),
    "batch": (batch, "", ()),
    "abatch": (abatch, "asyncio", ()),
    "stream": (stream, "", ()),
    "astream": (astream, "asyncio", ()),
    "astream-uvloop": (astream, "uvloop", ()),
    "early-stop": (early_stop, "", ()),
    "cancel": (cancel, "asyncio", ()),
    "cancel-uvloop": (cancel, "uvloop", ()),
    "to_thread": (to_thread, "asyncio", ()),
    "run_in_executor": (run_in_executor, "asyncio", ()),
    "run_in_executor-uvloop": (run_in_executor, "uvloop", ()),
    "ThreadPoolExecutor": (thread_pool, "", ()),
    "anyio": (anyio, "asyncio", ()),
    "anyio-uvloop": (anyio, "uvloop", ()),
    "langgraph": (langgraph, "", ()),
    "tools": (tools, "", ()),
    "traceable": (
        traceable,
        "",
        ("langsmith", "langsmith-otel", "openinference+langsmith", "openllmetry+langsmith"),
    ),
}


def run(name: str, t: Any, want_steps: int) -> None:
    workload, loop, _ = ROWS[name]

    async def rounds() -> None:
        while len(steps.log) < want_steps:
            await workload(t)

    if loop == "uvloop":
        import uvloop

        uvloop.run(rounds())
    elif loop:
        asyncio.run(rounds())
    else:
        while len(steps.log) < want_steps:
            workload(t)
