"""Publishing into a full ring of 1,000 without a consumer, compared with S1's publish and consume in the same run.

    python benchmarks/ring.py [--count 300000] [--rounds 3] [--out benchmarks/results/ring.json]

Rates are the producer's, from the first publish to the last accepted message; CPU is the broker's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import generator
from brokers import LEVERET, machine, started

RING = 1000
SETTINGS = f'[[address-setting]]\nmatch = "load.#"\ndefault-ring-size = {RING}\n'
KINDS: dict[str, tuple[str, ...]] = {
    "16 B": ("--size", "16"),
    "1 KiB, confirms": ("--size", "1024", "--confirm", "200"),
}


def measure(count: int, rounds: int) -> dict[str, Any]:
    """Kind -> rates per second and CPU microseconds per message, for the ring and for S1; medians of the rounds."""
    results: dict[str, Any] = {}
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(SETTINGS)
        file.flush()
        for kind, flags in KINDS.items():
            ring: list[dict[str, Any]] = []
            plain: list[dict[str, Any]] = []
            for _ in range(rounds):
                with started(f"{LEVERET} --config {file.name}") as broker:
                    where = ["--port", str(broker.port), "--pid", str(broker.pid), "--count", str(count)]
                    one = generator.call(["--mode", "publish", *flags, *where])
                    assert one["left"] == RING, f"a ring of {RING} holds {one['left']}"
                    ring.append(one)
                with started(LEVERET) as broker:
                    where = ["--port", str(broker.port), "--pid", str(broker.pid), "--count", str(count)]
                    plain.append(generator.call([*flags, *where]))
            results[kind] = {
                "ring_per_s": statistics.median(one["pub_per_s"] for one in ring),
                "ring_cpu_us": statistics.median(one["cpu_s_per_M"] for one in ring),
                "s1_per_s": statistics.median(one["pub_per_s"] for one in plain),
                "s1_cpu_us": statistics.median(one["cpu_s_per_M"] for one in plain),
            }
    return results


def main() -> int:
    """Print and perhaps write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    generator.build()
    results = measure(options.count, options.rounds)
    for kind, figures in results.items():
        print(
            f"{kind:16} ring {figures['ring_per_s']:>11,.0f}/s, {figures['ring_cpu_us']:.2f} us; "
            f"S1 {figures['s1_per_s']:>9,.0f}/s, {figures['s1_cpu_us']:.2f} us"
        )
    if options.out is not None:
        options.out.write_text(json.dumps({"machine": machine(), "count": options.count, **results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
