#!/usr/bin/env python3
"""Recomputes the answer's figures from the requests with numpy and scipy, by formulas of their own, and compares.

Usage: check_with_scipy.py DUMP_PROGRAM. Leaves with 77 (skipped) where numpy or scipy is missing.
"""
import csv
import io
import json
import subprocess
import sys

try:
    import numpy as np
    from scipy import stats
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def run(program: str, *arguments: str) -> str:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def local_linear(total: np.ndarray, parts: np.ndarray, p: float) -> tuple[float, np.ndarray]:
    """Weighted least squares of every part on the total, solved as a linear system, read off at the quantile."""
    order = np.argsort(total, kind="stable")
    x, y = total[order], parts[order]
    n = len(x)
    at = np.quantile(x, p, method="inverted_cdf")
    center = int(np.ceil(p * n * (1 - 1e-12))) - 1
    half_width = max(0.3 * n * (1 - p), 3)
    kernel = np.clip(1 - np.abs(np.arange(n) - center) / half_width, 0, None)
    root = np.sqrt(kernel)
    design = np.column_stack([np.ones(n), x - at]) * root[:, None]
    fit, *_ = np.linalg.lstsq(design, y * root[:, None], rcond=None)
    return float(at), fit[0]


def shortfall(total: np.ndarray, p: float) -> float:
    """Expected shortfall by Rockafellar and Uryasev: the minimum over v of v + E[(T - v)+] / (1 - p)."""
    def at(v: float) -> float:
        return v + np.mean(np.maximum(total - v, 0)) / (1 - p)
    return float(min(at(v) for v in np.sort(total)[-max(50, int(3 * len(total) * (1 - p))):]))


def check(name: str, got: float, want: float, tolerance: float) -> bool:
    ok = abs(got - want) <= tolerance
    if not ok:
        print(f"WRONG {name}: {got} instead of {want}")
    return ok


def check_case(program: str, case: str, seed: int, p: float) -> bool:
    rows = list(csv.reader(io.StringIO(run(program, "csv", case, str(seed)))))
    keys = rows[0][2:]
    data = np.array(rows[1:], dtype=float)
    total, parts = data[:, 1], data[:, 2:]
    answer = json.loads(run(program, "json", case, str(seed), str(p)))
    ok = check("parts sum", float(np.abs(parts.sum(axis=1) - total).max()), 0, 0)

    at, tail = local_linear(total, parts, p)
    typical_at, typical = local_linear(total, parts, 0.5)
    latency = answer["latency_ns"]
    ok &= check("tail", latency["tail"], at, 1)
    ok &= check("typical", latency["typical"], typical_at, 1)
    ok &= check("shortfall", latency["shortfall"], shortfall(total, p), 2)
    for finding in answer["findings"]:
        key = "/".join([finding["span"], finding["cause"], finding["blame"]["name"]])
        k = keys.index(key)
        ok &= check(f"{key} tail", finding["tail_ns"], tail[k], 2 + 1e-6 * at)
        ok &= check(f"{key} typical", finding["typical_ns"], typical[k], 2 + 1e-6 * at)
        ok &= check(f"{key} share", finding["share_of_excess"], (tail[k] - typical[k]) / (at - typical_at), 2e-6)
    for field, whole in (("typical_ns", "typical"), ("tail_ns", "tail"), ("excess_ns", "excess")):
        parts_sum = sum(f[field] for f in answer["findings"]) + answer["rest"][field]
        ok &= check(f"sum of {field}", parts_sum, latency[whole], 0)

    low, high = latency["tail_ci95"]
    n = len(total)
    if answer["bootstrap"]["block_length"] == 1:  # the quantile's bootstrap is binomial in the ranks
        ranks = stats.binom.ppf([0.025, 0.975], n, p)
        x = np.sort(total)
        slack = 0.25 * (x[int(ranks[1])] - x[int(ranks[0])])
        ok &= check("interval's lower end", low, x[int(ranks[0])], slack + 1)
        ok &= check("interval's upper end", high, x[min(int(ranks[1]), n - 1)], slack + 1)
    ok &= low <= latency["tail"] <= high

    print(f"{case} seed {seed} P{p * 100:g}: {len(answer['findings'])} lines, "
          f"block {answer['bootstrap']['block_length']}, {'right' if ok else 'WRONG'}")
    return ok


def main() -> int:
    program = sys.argv[1]
    right = [check_case(program, case, seed, p)
             for case in ("healthy", "pause", "gil", "block", "size", "dark")
             for seed, p in ((1, 0.99), (2, 0.95))]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
