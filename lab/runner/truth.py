"""Joins the client's rows with the service's own log and judges the run.

Nothing here comes from a tracer or from tailspan. A run whose fault did not
strike as the case says, or whose client was the bottleneck, is void: it is
neither right nor wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .case import Case, Row

# Of the slowest 1 %, this share must be hits; and a typical hit is this much slower.
TAIL_HITS_MIN = 0.8
SLOWDOWN_MIN = 2.0
ERROR_SHARE_MAX = 0.01
# A machine that is this busy with other people's work has another cause of its own.
OTHERS_CPU_SHARE_MAX = 0.15


def step(row: Row, name: str) -> dict[str, Any] | None:
    """A step of the service's own log of this request."""
    service = row.get("service") or {}
    return next((s for s in service.get("steps", []) if s["name"] == name), None)


def step_ms(row: Row, name: str) -> float:
    """How long that step took, 0 if there was none."""
    found = step(row, name)
    return 1e-6 * (found["end_mono_ns"] - found["start_mono_ns"]) if found else 0.0


def overlap_ms(one: dict[str, Any], start_ns: int, end_ns: int) -> float:
    """Common length of a step or service row and an interval."""
    common = min(one["end_mono_ns"], end_ns) - max(one["start_mono_ns"], start_ns)
    return 1e-6 * max(0, common)


def join(client: Path, service_log: Path) -> list[Row]:
    """All requests' rows in arrival order, failed ones too."""
    answers = json.loads(client.read_text())["rows"]
    log = {}
    for line in service_log.read_text().splitlines():
        entry = json.loads(line)
        log[entry["id"]] = entry
    rows = [{**r, "service": log.get(r["id"])} for r in answers]
    return sorted(rows, key=lambda r: r["intended_mono_ns"])


def quantiles_ms(values: list[float]) -> dict[str, float]:
    """p50, p90, p99 and max."""
    if not values:
        return {}
    ordered = sorted(values)
    at = {f"p{q}": ordered[int(q / 100 * (len(ordered) - 1))] for q in (50, 90, 99)}
    return {**{k: round(v, 2) for k, v in at.items()}, "max": round(ordered[-1], 2)}


def judge(case: Case, rows: list[Row], evidence: dict[str, Any], client: dict[str, Any]) -> dict[str, Any]:
    """The run's truth: who was hit, how it shows, and why the run is void, if it is."""
    everyone = [r for r in rows if r["status"] == 200 and r["service"]]
    path = case.operation.split()[-1]
    rows = [r for r in rows if r["path"] == path]
    judged = [r for r in everyone if r["path"] == path]
    latency = {r["id"]: 1e-6 * (r["end_mono_ns"] - r["intended_mono_ns"]) for r in judged}
    hits = {r["id"] for r in judged if case.hit(r, everyone, evidence)}
    others = [latency[i] for i in latency if i not in hits]
    slowest = sorted(latency, key=latency.__getitem__)[-max(1, len(latency) // 100):]
    struck = [latency[i] for i in hits]
    void = [f"the client was the bottleneck: {reason}" for reason in client["bottleneck"]]
    if len(rows) - len(judged) > ERROR_SHARE_MAX * len(rows):
        void.append(f"{len(rows) - len(judged)} of {len(rows)} requests failed")
    others_cpu = evidence["cpu"]["others"]
    if others_cpu > OTHERS_CPU_SHARE_MAX:
        void.append(f"others used {100 * others_cpu:.0f} % of the machine")
    share = len(hits) / max(1, len(judged))
    tail_share = len(hits.intersection(slowest)) / len(slowest)
    if case.hit_share is not None:
        low, high = case.hit_share
        if not low <= share <= high:
            void.append(f"{100 * share:.1f} % of requests were hit, not {100 * low:g} to {100 * high:g} %")
        if tail_share < TAIL_HITS_MIN:
            void.append(f"only {100 * tail_share:.0f} % of the slowest 1 % were hit")
        slowdown = quantiles_ms(struck).get("p50", 0) / max(1e-9, quantiles_ms(others).get("p50", 1))
        if slowdown < SLOWDOWN_MIN:
            void.append(f"a typical hit was only {slowdown:.1f} times as slow as the rest")
    return {
        "requests": len(rows),
        "failed": len(rows) - len(judged),
        "hit": len(hits),
        "hit_share": round(share, 4),
        "hits_in_slowest_1_percent": round(tail_share, 3),
        "latency_ms": quantiles_ms(list(latency.values())),
        "hit_ms": quantiles_ms(struck),
        "other_ms": quantiles_ms(others),
        "client": client,
        "evidence": evidence,
        "void": void,
    }
