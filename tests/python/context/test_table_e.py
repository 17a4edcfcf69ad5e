"""The quick form of table (e): about 50 steps a row."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import table_e  # noqa: E402

QUICK_STEPS = 50


@pytest.mark.parametrize("tracer", table_e.TRACERS)
def test_right_span(tracer: str) -> None:
    *results, last = table_e.measure(tracer, table_e.fitting(tracer), QUICK_STEPS)
    assert [result["row"] for result in results] == table_e.fitting(tracer)
    assert {r["row"]: r["wrong"] for r in results if r["share"] < table_e.BAR} == {}
    assert {r["row"]: r["ring_share"] for r in results if r.get("ring_share", 1) < table_e.BAR} == {}
    assert all(result["steps"] + result["after_end"] >= QUICK_STEPS for result in results)
    assert last["hook_errors"] == {}


# Each hook is needed: without it these rows are wrong. (asyncio and thread_pool are one hook on two modules.)
NEEDED = {
    "asyncio,thread_pool": ("otel", "to_thread"),
    "uvloop": ("otel", "uvloop"),
    "anyio_threads": ("langsmith", "anyio"),
    "otel_context": ("otel", "plain"),
    "openinference": ("openinference", "ainvoke"),
    "openllmetry": ("openllmetry", "stream"),
    "openllmetry_graph": ("openllmetry", "langgraph"),
    "langchain_tracer": ("langsmith", "ainvoke"),
    "cancelled_start": ("langsmith", "cancel"),
    "cancelled_retriever": ("langsmith", "cancel"),
    "cancelled_model": ("langsmith", "cancel"),
    "langsmith_runs": ("langsmith", "traceable"),
    "stream_runnable": ("openinference", "stream"),
    "stream_chat_model": ("langsmith", "stream"),
    "stream_graph": ("langsmith", "langgraph"),
}


@pytest.mark.long
@pytest.mark.skipif(not table_e.HAS_LANGCHAIN, reason="no LangChain for this Python")
@pytest.mark.parametrize("hooks", NEEDED)
def test_the_table_notices_a_missing_hook(hooks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILSPAN_HOOKS_OFF", hooks)
    tracer, row = NEEDED[hooks]
    result, _ = table_e.measure(tracer, [row], QUICK_STEPS)
    assert result["share"] < table_e.BAR
