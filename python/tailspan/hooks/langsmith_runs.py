"""LangSmith's own runs: `@traceable` functions and generators, and `with trace(...)`.

LangSmith makes a run in a context of its own (the container's) and runs the function there; in async code both run
setup and end happen on an executor's thread. So the cell is put into the container's context, and published here in
case the function runs on this very thread next.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any, Callable, Iterator

from tailspan import runs
from tailspan._context import current, current_cell, enter, leave, publish, refresh
from tailspan.hooks.guard import Guard, attribute, takes

_guard = Guard("langsmith_runs")


def apply(run_helpers: ModuleType) -> None:
    setup = attribute(run_helpers, "_setup_run")
    end = attribute(run_helpers, "_container_end")
    iterate = attribute(run_helpers, "_process_iterator")
    trace = attribute(run_helpers, "trace")
    takes(setup, "func", "container_input")
    takes(end, "container")
    takes(iterate, "generator", "run_container")
    enters = {name: attribute(trace, name) for name in ("__enter__", "__exit__", "__aenter__", "__aexit__")}
    parent_ref = attribute(attribute(run_helpers, "_context"), "_PARENT_RUN_TREE_REF")

    run_helpers._setup_run = _setup_in_cell(setup)  # type: ignore[attr-defined]
    run_helpers._container_end = _end_cell(end)  # type: ignore[attr-defined]
    run_helpers._process_iterator = _iterate_in_cell(iterate)  # type: ignore[attr-defined]
    for name, method in _trace_methods(enters, parent_ref).items():
        setattr(trace, name, method)
    run_helpers.tracing_context = _parent_in_cell(  # type: ignore[attr-defined]
        attribute(run_helpers, "tracing_context"), parent_ref
    )
    _hook_streams(run_helpers)


def _cell(run: Any) -> Any:
    return runs.obtain_langsmith(run.id, run.parent_run_id, run.trace_id)


def _setup_in_cell(stock: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stock)
    def _setup_run(*args: Any, **kwargs: Any) -> Any:
        container = stock(*args, **kwargs)
        if _guard.on:
            try:
                run = container["new_run"]
                if run is not None:
                    cell = _cell(run)
                    container["context"].run(current.set, cell)
                    publish(cell)
            except Exception as error:
                _guard.failed(error)
        return container

    return _setup_run


def _end_cell(stock: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stock)
    def _container_end(container: Any, *args: Any, **kwargs: Any) -> None:
        try:
            stock(container, *args, **kwargs)
        finally:
            try:
                run = container.get("new_run")
                cell = runs.forget(run.id) if run is not None else None
                if cell is not None:
                    leave(cell)
                    refresh()
            except Exception as error:
                _guard.failed(error)

    return _container_end


def _iterate_in_cell(stock: Callable[..., Any]) -> Callable[..., Any]:
    """The iterator is resumed inside the container's context: publish that for each chunk, then the consumer's."""

    @wraps(stock)
    def _process_iterator(generator: Any, run_container: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        inner: Any = stock(generator, run_container, *args, **kwargs)
        context = run_container["context"]
        try:
            while True:
                _quietly(publish, context.get(current))
                try:
                    chunk = next(inner)
                except StopIteration as stop:
                    return stop.value
                finally:
                    _quietly(refresh)
                yield chunk
        finally:
            _quietly(publish, context.get(current))
            inner.close()
            _quietly(refresh)

    return _process_iterator


def _parent_in_cell(stock: Callable[..., Any], parent_ref: Any) -> Callable[..., Any]:
    """`tracing_context(parent=run)`: what is inside works for that run. LangSmith takes this way for coroutines where
    it does not see that `create_task` takes a context: on 3.10, and on 3.14 by the function's signature."""

    @contextmanager
    @wraps(stock)
    def tracing_context(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with stock(*args, **kwargs) as value:
            before, entered = current_cell(), False
            try:
                reference = parent_ref.get()
                run = reference() if reference is not None else None
                cell = runs.by_id(run.id) if run is not None else None
                entered = _guard.on and cell is not None and not cell.ended and not runs.is_below(before, cell)
                if entered:
                    enter(cell)
            except Exception as error:
                _guard.failed(error)
            try:
                yield value
            finally:
                if entered:
                    _quietly(enter, before)

    return tracing_context


def _trace_methods(stock: dict[str, Any], parent_ref: Any) -> dict[str, Any]:
    @wraps(stock["__enter__"])
    def __enter__(self: Any) -> Any:
        run = stock["__enter__"](self)
        _quietly(_enter_traced, run, parent_ref)
        return run

    @wraps(stock["__exit__"])
    def __exit__(self: Any, *args: Any) -> Any:
        try:
            return stock["__exit__"](self, *args)
        finally:
            _quietly(_leave_traced, self)

    @wraps(stock["__aenter__"])
    async def __aenter__(self: Any) -> Any:
        run = await stock["__aenter__"](self)
        _quietly(_enter_traced, run, parent_ref)
        return run

    @wraps(stock["__aexit__"])
    async def __aexit__(self: Any, *args: Any) -> Any:
        try:
            return await stock["__aexit__"](self, *args)
        finally:
            _quietly(_leave_traced, self)

    return {function.__name__: function for function in (__enter__, __exit__, __aenter__, __aexit__)}


def _enter_traced(run: Any, parent_ref: Any) -> None:
    """Only a run that LangSmith made the parent of what follows is traced."""
    reference = parent_ref.get()
    if _guard.on and reference is not None and reference() is run:
        enter(_cell(run))


def _leave_traced(traced: Any) -> None:
    run = getattr(traced, "new_run", None)
    cell = runs.forget(run.id) if run is not None else None
    if cell is not None:
        leave(cell)


def _hook_streams(run_helpers: ModuleType) -> None:
    """A traced function that returned a stream leaves its run open: the caller goes on in its own span."""
    for name in ("_TracedStream", "_TracedAsyncStream"):
        stream_class = attribute(run_helpers, name)
        stream_class.__init__ = _refreshing(stream_class.__init__)


def _refreshing(stock: Callable[..., None]) -> Callable[..., None]:
    @wraps(stock)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        _quietly(refresh)

    return __init__


def _quietly(function: Callable[..., Any], *args: Any) -> None:
    try:
        function(*args)
    except Exception as error:
        _guard.failed(error)
