#!/usr/bin/env python3
"""What tailspan costs a real service: the lab's `rag` with tracing off, with tracing to
a sink that answers 200, and recorded by tailspan.

Usage: service_cost.py [--rounds N] [--off-every N] [--requests N] [--case NAME] [--tailspan PATH] [--json FILE]

All three run side by side, and get their load in turns: a round is one block of requests
for each, with the same arrivals, in an order that turns with each round. So a machine
whose speed drifts hits all alike. The arm without tracing may sit out most rounds: what is
asked of tailspan is its change against the sink, which needs many.

CPU is the service's own until its spans are exported (app, vector store and language model
together; the app's alone beside it), by the scheduler's books, which hold what probes add to
a switch. P50 is the client's, from intended start to last byte. Given is the geometric mean
of the rounds' paired ratios with its 95 % interval (Student's t of their logarithms). Needs
root and an idle machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "lab"))

from runner import case, services, session  # noqa: E402

ARMS = ("off", "sink", "tailspan")
# Spans leave the app this long after their end at the latest, in each arm; then the block is over.
EXPORT_EVERY_S, LEAD_S, DRAIN_S = 0.5, 1.0, 1.0
# The two idle services count among the others.
OTHERS_CPU_SHARE_MAX = 0.08
# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T_95 = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
        2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042)
NORMAL_95 = 1.95996


def student_95(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t; beyond the table by the first terms of its expansion in 1 / freedom."""
    if freedom < len(T_95):
        return T_95[freedom]
    return NORMAL_95 + (NORMAL_95**3 + NORMAL_95) / (4 * freedom)


def start(one: case.Case, arm: str, options: session.Options) -> session.Session:
    """The arm's service, up and warm."""
    tracer = "off" if arm == "off" else None
    tailspan = options.tailspan if arm == "tailspan" else None
    run = session.Session(one, ARMS.index(arm), dataclasses.replace(options, tailspan=tailspan, tracer=tracer))
    run.bring_up()
    return run


def block(run: session.Session, seed: int, operation: str) -> dict[str, float]:
    """One block of requests; raises session.RunFailed. A late client fails it too."""
    used = run.load(seed)
    told = json.loads((run.folder / "client.json").read_text())
    if told["client"]["bottleneck"] or any(r["status"] != 200 for r in told["rows"]):
        raise session.RunFailed(f"client: {told['client']['bottleneck'] or 'failed requests'}")
    if used["cpu"]["others"] > OTHERS_CPU_SHARE_MAX:
        raise session.RunFailed(f"others used {100 * used['cpu']['others']:.0f} % of the machine")
    path = operation.split()[-1]
    ms = sorted(1e-6 * (r["end_mono_ns"] - r["intended_mono_ns"]) for r in told["rows"] if r["path"] == path)
    per_request = 1e3 / len(told["rows"])
    return {
        "service_cpu_ms": used["cpu_s"]["service"] * per_request,
        "app_cpu_ms": used["cpu_s"]["app"] * per_request,
        "p50_ms": statistics.median(ms),
        "p90_ms": ms[int(0.9 * len(ms))],
        "recorder_cpu_ms": used["cpu_s"]["recorder"] * per_request,
        "recorder_peak_rss_mb": used["cpu_s"].get("recorder_peak_rss_mb", 0.0),
    }


def paired(base: list[float], changed: list[float]) -> tuple[float, float, float]:
    """(change, low, high) in percent: the geometric mean of the pairs' ratios with its 95 % interval. An arithmetic one
    would come out above nothing for two arms that are alike: noise in a denominator only adds."""
    logs = [math.log(c / b) for b, c in zip(base, changed, strict=True)]
    mean = statistics.fmean(logs)
    half = math.inf if len(logs) < 2 else student_95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return tuple(100 * math.expm1(x) for x in (mean, mean - half, mean + half))


def tell(rounds: list[dict[str, dict[str, float]]]) -> None:
    """The medians of each arm, and the arms against each other."""
    columns = list(rounds[0][ARMS[1]])
    print(f"\n{len(rounds)} rounds; medians (half of the rounds lie between)")
    for arm in ARMS:
        told = []
        its = [r[arm] for r in rounds if arm in r]
        for column in columns:
            low, middle, high = statistics.quantiles([block[column] for block in its], n=4)
            told.append(f"{column} {middle:.2f} ({low:.2f}-{high:.2f})")
        print(f"{arm:<9} {len(its)} blocks: " + ", ".join(told))
    for base, changed in (("sink", "tailspan"), ("off", "sink"), ("off", "tailspan")):
        both = [r for r in rounds if base in r and changed in r]
        print(f"{changed} against {base}, {len(both)} rounds:")
        for column in ("service_cpu_ms", "app_cpu_ms", "p50_ms", "p90_ms"):
            mean, low, high = paired([r[base][column] for r in both], [r[changed][column] for r in both])
            print(f"    {column:<15} {mean:+6.2f} % [{low:+.2f}, {high:+.2f}]")


def measure(runs: dict[str, session.Session], given: argparse.Namespace, operation: str) -> int:
    rounds: list[dict[str, dict[str, float]]] = []
    for seed in range(2 * given.rounds):
        arms = ARMS if seed % given.off_every == 0 else ARMS[1:]
        turn = (seed // given.off_every if arms is ARMS else seed) % len(arms)
        measured: dict[str, dict[str, float]] = {}
        try:
            for arm in arms[turn:] + arms[:turn]:
                measured[arm] = block(runs[arm], seed, operation)
        except session.RunFailed as error:
            print(f"round {seed}: left out: {arm}: {error}", flush=True)
            continue
        if seed == 0:  # the first block still fills caches
            continue
        rounds.append(measured)
        print(f"round {seed}: " + ", ".join(
            f"{arm} {block['service_cpu_ms']:.2f} ms CPU, p50 {block['p50_ms']:.2f} ms"
            for arm, block in measured.items()), flush=True)
        if given.json:
            given.json.write_text(json.dumps(rounds, indent=1))
        if len(rounds) == given.rounds:
            break
    if len(rounds) < 2:
        return 1
    tell(rounds)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--off-every", type=int, default=1, metavar="N", help="the arm without tracing: each Nth round")
    parser.add_argument("--requests", type=int, default=120, help="of each block")
    parser.add_argument("--case", default="healthy-low")
    parser.add_argument("--tailspan", default=str(ROOT / "build/release/bin/tailspan"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    one = case.load(given.case)
    one = dataclasses.replace(one, env={**one.env, "OTEL_BSP_SCHEDULE_DELAY": f"{1e3 * EXPORT_EVERY_S:.0f}"})
    services.set_up(one.service)
    session.sweep()
    options = session.Options(given.tailspan, requests=given.requests, lead_s=LEAD_S, watch_s=0.1, drain_s=DRAIN_S)
    runs: dict[str, session.Session] = {}
    try:
        for arm in ARMS:
            runs[arm] = start(one, arm, options)
        return measure(runs, given, one.operation)
    finally:
        for run in runs.values():
            run.close(keep_recording=False)


if __name__ == "__main__":
    sys.exit(main())
