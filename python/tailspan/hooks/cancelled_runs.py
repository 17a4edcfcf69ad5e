"""Runs that LangChain leaves open when they are cancelled: afterwards what was current before them is current again.

LangChain ends a run only once its `on_*_start` has returned, a retriever's only for an `Exception`, a chat model's never
when the call itself is cancelled. The application goes on in the same context wherever the cancelling is done inside the
caller's own task: `asyncio.timeout`, anyio's scopes, and from Python 3.12 on `asyncio.wait_for`.
"""

from __future__ import annotations

from functools import wraps
from inspect import iscoroutinefunction
from types import ModuleType
from typing import Any, Callable

from tailspan._context import current, enter
from tailspan.hooks.guard import Guard, Unfit, attribute

_STARTS = ("on_chain_start", "on_llm_start", "on_chat_model_start", "on_tool_start", "on_retriever_start")

# library module: (hook, class, its coroutine functions)
_HOOKED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "langchain_core.callbacks.manager": ("cancelled_start", "AsyncCallbackManager", _STARTS),
    "langchain_core.retrievers": ("cancelled_retriever", "BaseRetriever", ("ainvoke",)),
    "langchain_core.language_models.chat_models": ("cancelled_model", "BaseChatModel", ("agenerate",)),
}


def apply(module: ModuleType) -> None:
    hook, class_name, names = _HOOKED[module.__name__]
    owner, guard = attribute(module, class_name), Guard(hook)
    restoring = [(name, _restoring(attribute(owner, name), guard)) for name in names]
    for name, function in restoring:
        setattr(owner, name, function)


def _restoring(stock: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    """Where a run was ended as it should be, this is the case already and costs nothing."""
    if not iscoroutinefunction(stock):
        raise Unfit(f"{stock.__qualname__} is no coroutine function")

    @wraps(stock)
    async def call(*args: Any, **kwargs: Any) -> Any:
        before = current.get(None)
        try:
            return await stock(*args, **kwargs)
        except GeneratorExit:
            raise  # thrown away unfinished, perhaps from another context: nothing goes on in its own
        except BaseException:
            if guard.on:
                try:
                    enter(before)
                except Exception as error:
                    guard.failed(error)
            raise

    return call
