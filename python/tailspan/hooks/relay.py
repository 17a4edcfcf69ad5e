"""Generators that keep a run open while their consumer works: swap cells at every chunk.

A generator shares its consumer's context, so a run it entered stays current in the consumer between chunks. The relay
remembers what was current inside, gives the consumer its own cell back at each chunk, and restores the inside before
the generator goes on, also when it is closed early or from another context.
"""

from __future__ import annotations

import sys
from functools import wraps
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import Any, AsyncIterator, Callable, Iterator

from tailspan._context import current, enter
from tailspan.hooks.guard import Guard, Unfit, attribute

_NEW = object()


def relay_methods(owner: Any, names: tuple[str, ...], guard: Guard) -> None:
    """Replaces generator methods of a class (all of them, or none with Unfit)."""
    relayed = [(name, relayed_function(attribute(owner, name), guard)) for name in names]
    for name, function in relayed:
        setattr(owner, name, function)


def relayed_function(stock: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    if isasyncgenfunction(stock):
        return _relayed_async(stock, guard)
    if isgeneratorfunction(stock):
        return _relayed_sync(stock, guard)
    raise Unfit(f"{stock.__qualname__} is no generator function")


def _swap(cell: Any, guard: Guard) -> Any:
    """Makes `cell` current, returns what was."""
    was = current.get(None)
    if cell is not was and cell is not _NEW:
        try:
            enter(cell)
        except Exception as error:
            guard.failed(error)
    return was


def _relayed_sync(stock: Callable[..., Iterator[Any]], guard: Guard) -> Callable[..., Iterator[Any]]:
    @wraps(stock)
    def stream(*args: Any, **kwargs: Any) -> Iterator[Any]:
        generator: Any = stock(*args, **kwargs)
        inside: Any = _NEW
        resume, argument = generator.send, None
        while True:
            outside = _swap(inside, guard)
            try:
                chunk = resume(argument)
            except StopIteration as stop:
                return stop.value
            finally:
                inside = _swap(outside, guard)
            try:
                argument = yield chunk
                resume = generator.send
            except GeneratorExit:
                outside = _swap(inside, guard)
                try:
                    generator.close()
                finally:
                    _swap(outside, guard)
                raise
            except BaseException as error:
                resume, argument = generator.throw, error

    return stream


def _relayed_async(stock: Callable[..., AsyncIterator[Any]], guard: Guard) -> Callable[..., AsyncIterator[Any]]:
    @wraps(stock)
    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        generator: Any = stock(*args, **kwargs)
        inside: Any = _NEW
        next_chunk = _first(generator)
        while True:
            outside = _swap(inside, guard)
            try:
                chunk = await next_chunk
            except StopAsyncIteration:
                return
            finally:
                inside = _swap(outside, guard)
            try:
                next_chunk = generator.asend((yield chunk))
            except GeneratorExit:
                outside = _swap(inside, guard)
                try:
                    await generator.aclose()
                finally:
                    _swap(outside, guard)
                raise
            except BaseException as error:
                next_chunk = generator.athrow(error)

    return stream


def _first(generator: Any) -> Any:
    """The first chunk, asked for while the loop is not looking: at shutdown the loop closes all generators it knows at
    the same time, and this one must be closed by its relay alone."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return generator.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)
