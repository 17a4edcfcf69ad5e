"""The lab's commands: what can be run, and how the results are told."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import score

from . import case, paths, services, session

# The demo's load lasts 45 seconds.
DEMO_CASE, DEMO_REQUESTS = "gil", 1125

EPILOG = """exit status of run: 0 every scored run was right (or nothing was scored), 1 one was
wrong, void or failed, 2 wrong usage"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lab", description=__doc__, epilog=EPILOG)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the cases")
    commands.add_parser("setup", help="install the pinned parts and build the data, once")
    demo = commands.add_parser("demo", help="record one case and print tailspan's answer")
    demo.add_argument("--tailspan", metavar="PATH", help="the program (default: from PATH)")
    commands.add_parser("clean", help="remove what crashed runs left on this host, and old run folders")
    run = commands.add_parser("run", help="run cases and score tailspan's answers")
    run.add_argument("names", nargs="+", metavar="NAME", help="cases, or `all`")
    run.add_argument("--repeat", type=int, default=1, metavar="N", help="runs of each case (default 1)")
    run.add_argument("--seed", type=int, default=1, help="seed of the first run's load (default 1)")
    run.add_argument("--json", action="store_true", help="one JSON document instead of text")
    run.add_argument("--tailspan", metavar="PATH", help="the program (default: from PATH)")
    run.add_argument("--no-record", action="store_true", help="without tailspan: only the lab's own truth")
    run.add_argument("--requests", type=int, metavar="N", help="instead of the case's own number")
    run.add_argument("--rate", type=float, metavar="RPS", help="instead of the case's own rate")
    run.add_argument("--tracer", help="openllmetry, openinference, langsmith or off")
    run.add_argument("--keep", action="store_true", help="keep recordings also of right runs")
    run.add_argument("--keep-bodies", action="store_true", help="with --no-record: keep what was exported")
    return parser


def _check_host() -> None:
    if os.geteuid() != 0:
        raise SystemExit("lab: needs root (namespaces, packet rules, cgroups)")
    missing = [tool for tool in ("ip", "tc", "iptables") if shutil.which(tool) is None]
    if missing:
        raise SystemExit(f"lab: no {', '.join(missing)}: apt-get install iproute2 iptables")


def _tailspan(given: str | None) -> str:
    found = shutil.which(given or "tailspan")
    if found is None:
        raise SystemExit(f"lab: no program {given or 'tailspan'}; give --tailspan PATH or --no-record")
    return str(Path(found).resolve())


def _run_once(one: case.Case, seed: int, options: session.Options, keep: bool) -> dict[str, Any]:
    """The run's result; never raises for a run that failed."""
    session.sweep()
    run = session.Session(one, seed, options)
    result: dict[str, Any] = {"case": one.name, "seed": seed, "folder": str(run.folder)}
    right = False
    try:
        outcome = run.run()
        result["truth"] = outcome.truth
        if outcome.explanation is not None:
            scored = score.score(one.accept, outcome.explanation)
            right = scored.right
            result.update(score={**asdict(scored), "right": right}, explain_s=outcome.explain_s)
            result["void"] = outcome.truth["void"]
    except (session.RunFailed, OSError, RuntimeError) as error:
        result["failed"] = str(error)
    finally:
        run.close(keep_recording=keep or not right)
    return result


def _mark(value: bool | None) -> str:
    return {True: "yes", False: "NO", None: "-"}[value]


def _line(result: dict[str, Any]) -> str:
    head = f"{result['case']:<17} seed {result['seed']:<3}"
    if "failed" in result:
        return f"{head} FAILED: {result['failed']}"
    told = result["truth"]
    latency, cpu = told["latency_ms"], told["evidence"]["cpu"]
    text = (f"{head} {told['requests']} requests, p50 {latency['p50']:.0f} p99 {latency['p99']:.0f} ms, "
            f"CPU {100 * cpu['ours']:.0f} % (others {100 * cpu['others']:.0f}), "
            f"hit {100 * told['hit_share']:.1f} %")
    if told["hit"]:
        text += (f" (hit p50 {told['hit_ms']['p50']:.0f} ms, others {told['other_ms']['p50']:.0f}; "
                 f"{100 * told['hits_in_slowest_1_percent']:.0f} % of the slowest 1 %)")
    if told["void"]:
        text += " VOID: " + "; ".join(told["void"])
    if "score" in result:
        s = result["score"]
        text += (f"\n    verdict {_mark(s['verdict'])} cause {_mark(s['cause'])} span {_mark(s['span'])} "
                 f"blame {_mark(s['blame'])} | {s['answer']} | explained in {result['explain_s']} s")
    return text


def _state(result: dict[str, Any]) -> str:
    if "failed" in result:
        return "failed"
    if result["truth"]["void"]:
        return "void"
    if "score" not in result:
        return "unscored"
    return "right" if result["score"]["right"] else "wrong"


def _summary(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys(r["case"] for r in results):
        states = [_state(r) for r in results if r["case"] == name]
        rows.append({"case": name, "runs": len(states),
                     **{s: states.count(s) for s in ("right", "wrong", "void", "failed", "unscored")}})
    return rows


def _table(rows: list[dict[str, Any]]) -> str:
    columns = list(rows[0])
    lines = [f"{'case':<17}" + "".join(f"{c:>10}" for c in columns[1:])]
    lines += [f"{r['case']:<17}" + "".join(f"{r[c]:>10}" for c in columns[1:]) for r in rows]
    return "\n".join(lines)


def _run(arguments: argparse.Namespace) -> int:
    _check_host()
    chosen = case.names() if arguments.names == ["all"] else arguments.names
    try:
        cases = [case.load(name) for name in chosen]
    except KeyError as error:
        print(f"lab: no case {error}; see lab list", file=sys.stderr)
        return 2
    options = session.Options(
        tailspan=None if arguments.no_record else _tailspan(arguments.tailspan),
        requests=arguments.requests, tracer=arguments.tracer, rate_rps=arguments.rate,
        keep_bodies=arguments.keep_bodies,
    )
    for name in {c.service for c in cases}:
        services.set_up(name)
    results = []
    for n in range(arguments.repeat):
        for one in cases:
            results.append(_run_once(one, arguments.seed + n, options, arguments.keep))
            print(_line(results[-1]), file=sys.stderr if arguments.json else sys.stdout, flush=True)
    summary = _summary(results)
    if arguments.json:
        print(json.dumps({"schema": "tailspan.lab/1", "runs": results, "summary": summary}, indent=1))
    else:
        print("\n" + _table(summary))
    return 0 if all(_state(r) in ("right", "unscored") for r in results) else 1


def _demo(tailspan: str) -> int:
    """The README's first command: one fault, recorded, and tailspan's words about it."""
    _check_host()
    one = case.load(DEMO_CASE)
    print("demo: setting up the service (minutes the first time)", file=sys.stderr)
    services.set_up(one.service)
    session.sweep()
    run = session.Session(one, 1, session.Options(tailspan, requests=DEMO_REQUESTS))
    load_s = DEMO_REQUESTS / one.rate_rps
    print(f"demo: tailspan run -- {one.service} under load for {load_s:.0f} s: {one.summary}", file=sys.stderr)
    try:
        outcome = run.run()
        print(run.answer())
        latency = outcome.truth["latency_ms"]
        print(f"demo: the client saw p50 {latency['p50']:.0f} ms, p99 {latency['p99']:.0f} ms; the recording "
              f"is {run.folder / 'recording.duckdb'}", file=sys.stderr)
    except session.RunFailed as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        run.close(keep_recording=True)
    return 0


def _clean() -> None:
    session.sweep()
    shutil.rmtree(paths.RUNS, ignore_errors=True)


def main() -> int:
    arguments = _parser().parse_args()
    # Ending the lab, however politely, must run what cleans up behind it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    if arguments.command == "list":
        for name in case.names():
            print(f"{name:<17} {case.load(name).summary}")
    elif arguments.command == "setup":
        start = time.monotonic()
        for name in services.SERVICES:
            services.set_up(name)
        print(f"lab: set up in {time.monotonic() - start:.0f} s")
    elif arguments.command == "demo":
        return _demo(_tailspan(arguments.tailspan))
    elif arguments.command == "clean":
        _clean()
    else:
        return _run(arguments)
    return 0
