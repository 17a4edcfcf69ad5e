"""The hooks, one module each, applied when (and only if) the library they hook is imported.

`install()` puts one finder on `sys.meta_path`; it wraps the loader of the modules named in `HOOKS` and applies their
hooks right after the module's own code ran, so nobody can hold an unhooked function. A hook that finds a library's
insides different from what it knows raises `Unfit` and stays off, with the reason in `status()`. Hooks named in
`TAILSPAN_HOOKS_OFF` (comma separated) stay off too.

The C extension is loaded with the first such module: a Python process that uses none of them pays one dict lookup
per import and nothing else.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType

from tailspan import status as _status
from tailspan.hooks.guard import Unfit

TYPE_CHECKING = False  # typing's own would load it at every start of Python
if TYPE_CHECKING:
    from typing import Any

# (hook, library module that triggers it, our module with `apply(library_module)`)
HOOKS: tuple[tuple[str, str, str], ...] = (
    ("asyncio", "asyncio", "loop"),
    ("thread_pool", "concurrent.futures.thread", "loop"),
    ("uvloop", "uvloop", "uvloop_tasks"),
    ("anyio_threads", "anyio.to_thread", "anyio_threads"),
    ("trio", "trio", "trio_steps"),
    ("greenlet", "greenlet", "greenlets"),
    ("otel_context", "opentelemetry.context", "otel_context"),
    ("otel_span_end", "opentelemetry.sdk.trace", "otel_span_end"),
    ("openinference", "openinference.instrumentation.langchain._tracer", "openinference"),
    ("openllmetry", "opentelemetry.instrumentation.langchain.callback_handler", "openllmetry"),
    ("openllmetry_graph", "opentelemetry.instrumentation.langchain.patch", "openllmetry_graph"),
    ("one_tracer", "opentelemetry.instrumentation.langchain", "one_tracer"),
    ("one_tracer", "openinference.instrumentation.langchain", "one_tracer"),
    ("one_tracer", "langsmith.utils", "one_tracer"),
    ("langchain_tracer", "langchain_core.tracers.langchain", "langchain_tracer"),
    ("cancelled_start", "langchain_core.callbacks.manager", "cancelled_runs"),
    ("cancelled_retriever", "langchain_core.retrievers", "cancelled_runs"),
    ("cancelled_model", "langchain_core.language_models.chat_models", "cancelled_runs"),
    ("stream_runnable", "langchain_core.runnables.base", "stream_runnable"),
    ("stream_branch", "langchain_core.runnables.branch", "stream_branch"),
    ("stream_fallbacks", "langchain_core.runnables.fallbacks", "stream_fallbacks"),
    ("stream_chat_model", "langchain_core.language_models.chat_models", "stream_chat_model"),
    ("stream_llm", "langchain_core.language_models.llms", "stream_llm"),
    ("stream_graph", "langgraph.pregel.main", "stream_graph"),
    ("langsmith_runs", "langsmith.run_helpers", "langsmith_runs"),
)

_finder: _AfterImport | None = None


class _AfterImport:
    """Finder that hooks named modules after their own code has run. Thread safe: state is per import thread."""

    def __init__(self, wanted: dict[str, list[tuple[str, str]]]) -> None:
        self._wanted = wanted
        self._looking = threading.local()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._wanted or getattr(self._looking, "name", None) == name:
            return None
        self._looking.name = name
        try:
            spec = _find_with_others(self, name, path, target)
        finally:
            self._looking.name = None
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _HookingLoader(spec.loader, self)  # type: ignore[assignment]
        return spec

    def loaded(self, module: ModuleType) -> None:
        for hook, ours in self._wanted.pop(module.__name__, ()):
            _apply(hook, ours, module)


class _HookingLoader:
    """Stands in for a module's loader until its code has run; everything else is the real loader's."""

    def __init__(self, loader: Any, finder: _AfterImport) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        create = getattr(self._loader, "create_module", None)
        return create(spec) if create is not None else None

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.loaded(module)


def install() -> None:
    """Idempotent. Modules that are already imported are hooked at once."""
    global _finder
    if _finder is not None:
        return
    wanted: dict[str, list[tuple[str, str]]] = {}
    for hook, library, ours in HOOKS:
        wanted.setdefault(library, []).append((hook, ours))
    _finder = _AfterImport(wanted)
    sys.meta_path.insert(0, _finder)  # type: ignore[arg-type]
    if os.environ.get("TAILSPAN_STATUS_DIR") and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_status.write_again)
    for library in list(wanted):
        module = sys.modules.get(library)
        # A module still in the middle of its import would be hooked half made: its loader has run already,
        # so it is left out and its hook reported off.
        if module is not None:
            if getattr(module.__spec__, "_initializing", False):
                for hook, _ in wanted.pop(library):
                    _status.hook(hook, False, f"{library} was being imported when tailspan started")
            else:
                _finder.loaded(module)


def status() -> dict[str, dict[str, Any]]:
    """Each hook that was tried: {"on", "reason", "errors"}."""
    return _status.hook_states()


def _find_with_others(own: _AfterImport, name: str, path: Any, target: Any) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if finder is own or find is None:
            continue
        spec = find(name, path, target)
        if spec is not None:
            return spec
    return None


def _apply(hook: str, ours: str, library: ModuleType) -> None:
    if hook in os.environ.get("TAILSPAN_HOOKS_OFF", "").split(","):
        _status.hook(hook, False, "off by TAILSPAN_HOOKS_OFF")
        return
    if not _context_loads():
        return
    try:
        importlib.import_module(f"tailspan.hooks.{ours}").apply(library)
    except Unfit as reason:
        _status.hook(hook, False, str(reason))
    except Exception as error:
        _status.hook(hook, False, f"{type(error).__name__}: {error}")
    else:
        _status.hook(hook, True)


_context_state: bool | None = None


def _context_loads() -> bool:
    global _context_state
    if _context_state is None:
        if not _in_main_interpreter():
            _context_state = False  # quietly: the status is the process's, and the main interpreter's hooks are on
            return False
        try:
            import tailspan._context  # noqa: F401
        except Exception as error:
            _context_state = False
            if "free-threading build" in sys.version:
                _status.context_off("free-threaded builds of Python are not supported")
            else:
                _status.context_off(f"no tailspan._context for {sys.implementation.cache_tag}: {error}")
        else:
            _context_state = True
            _status.context_on()
    return _context_state


def _in_main_interpreter() -> bool:
    """The extension's state is the process's: in a second interpreter its types would meet another asyncio's."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # 3.13 and later, before
        try:
            interpreters = importlib.import_module(name)
            return bool(interpreters.get_current() == interpreters.get_main())
        except ImportError:
            continue
    return True
