"""What the guards cost: advantages of a large batch, and looking for loops."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from rlprobe.guards import RepetitionDetector, UpdateGuard, group_advantages, most_repeats

REPEATS = 15


def median_seconds(work: Callable[[], object]) -> float:
    costs = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        costs.append(time.perf_counter() - begin)
    return statistics.median(costs)


def advantages() -> None:
    random = np.random.default_rng(0)
    print("| advantages of | ms |")
    print("| --- | --- |")
    for dtype in (np.float32, np.float64):
        matrix = random.random((1024, 8)).astype(dtype)
        cost = median_seconds(lambda m=matrix: group_advantages(m))  # type: ignore[misc]
        print(f"| 1,024 groups x 8, {np.dtype(dtype)} | {cost * 1e3:.2f} |")
    flat, names = random.random(8192), random.permutation(np.repeat(np.arange(1024), 8))
    cost = median_seconds(lambda: group_advantages(flat, names))
    print(f"| the same, named and shuffled | {cost * 1e3:.2f} |")


def repetition() -> None:
    random = np.random.default_rng(0)
    print("\n| loops, n = 8 | tokens | million tokens a second |")
    print("| --- | --- | --- |")
    for length in (4_096, 16_384, 1_000_000):
        ids = random.integers(0, 150_000, length)
        cost = median_seconds(lambda i=ids: most_repeats(i))  # type: ignore[misc]
        print(f"| most_repeats, array | {length:,} | {length / cost / 1e6:.1f} |")
    listed = random.integers(0, 150_000, 16_384).tolist()
    cost = median_seconds(lambda: most_repeats(listed))
    print(f"| most_repeats, list | {len(listed):,} | {len(listed) / cost / 1e6:.1f} |")
    text = " ".join(f"word{number}" for number in listed)
    cost = median_seconds(lambda: most_repeats(text))
    print(f"| most_repeats, text | {len(listed):,} | {len(listed) / cost / 1e6:.1f} |")
    cost = median_seconds(lambda: RepetitionDetector().feed_all(listed))
    print(f"| RepetitionDetector, streaming | {len(listed):,} | {len(listed) / cost / 1e6:.1f} |")


def updates() -> None:
    guard = UpdateGuard()
    norms = np.random.default_rng(0).lognormal(size=2_000).tolist()
    cost = median_seconds(lambda: [guard.allows(norm) for norm in norms]) / len(norms)
    print(f"\nUpdateGuard: {cost * 1e6:.1f} µs a step")


def main() -> None:
    advantages()
    repetition()
    updates()


if __name__ == "__main__":
    main()
