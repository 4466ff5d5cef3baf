"""What a filter costs: evaluation on a JSON body beside `json.loads` of the same body, in the same run.

    python benchmarks/filters.py [--rounds 9] [--out benchmarks/results/filters.json]

Queues page B.5: three comparisons on a body of 1 KiB take at most twice as long as `json.loads` of it. Medians of the
rounds' own ratios, with the lowest and the highest; both are timed in each round, one behind the other.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leveret.engine.delivery.filters import MessageSubject
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.engine.messages.message import Envelope, Message
from leveret.expressions.language import AMPS, JMS, Expression, compiled
from leveret.expressions.parser import parse

GOAL = 2.0
NUMBER = 5000
#: What is measured: name -> filter; the first is that of the goal.
FILTERS = {
    "three comparisons": "/side = 'buy' AND /price > 100 AND /qty >= 500",
    "nested, IN, product": "/account/region = 'eu' AND /symbol IN ('EURUSD', 'USDJPY') AND /price * /qty > 1000",
    "a pattern": "/symbol LIKE '^EUR' AND /price > 100 AND /qty >= 500",
    "nothing of the body": "ROUTING_KEY() = 'k' AND PROPERTY('priority') IS NULL",
}
SELECTOR = "side = 'buy' AND price > 100 AND JMSPriority IS NULL"


def body(size: int = 1024) -> bytes:
    """An order in JSON, filled up to a size with fields that nothing asks for."""
    order: dict[str, Any] = {"id": 123456, "side": "buy", "price": 101.25, "qty": 500, "symbol": "EURUSD"}
    order["account"] = {"name": "acme", "region": "eu"}
    while len(json.dumps(order)) < size - 24:
        order[f"field{len(order)}"] = f"value {len(order)}"
    order["end"] = "x" * (size - len(json.dumps(order)) - 11)
    return json.dumps(order).encode()


def took(call: Callable[[], object]) -> float:
    """Microseconds of one call, of many."""
    return timeit.timeit(call, number=NUMBER) / NUMBER * 1e6


def ratios(call: Callable[[], object], other: Callable[[], object], rounds: int) -> dict[str, float]:
    """Of one call to another one."""
    pairs = [(took(call), took(other)) for _ in range(rounds)]
    each = [one / two for one, two in pairs]
    medians = {"us": statistics.median(one for one, _ in pairs), "loads_us": statistics.median(two for _, two in pairs)}
    return {**medians, "ratio": statistics.median(each), "low": min(each), "high": max(each)}


def measure(rounds: int) -> dict[str, Any]:
    """All figures."""
    octets = body()
    plain = Message(1, NATIVE.join(encode_header(len(octets)), octets), Envelope("", "k"))
    results: dict[str, Any] = {"python": platform.python_version(), "octets": len(octets), "goal": GOAL}

    def whole(expression: Expression) -> Callable[[], object]:
        return lambda: expression.matches(MessageSubject(plain))

    def again(expression: Expression, read: MessageSubject) -> Callable[[], object]:
        return lambda: expression.matches(read)

    for name, text in FILTERS.items():
        expression = compiled(text, AMPS)
        assert expression.matches(MessageSubject(plain)), name
        results[name] = ratios(whole(expression), lambda: json.loads(octets), rounds)
        read = MessageSubject(plain)
        expression.matches(read)
        results[name]["evaluation_us"] = statistics.median(took(again(expression, read)) for _ in range(rounds))
    many = [compiled(f"/side = 'buy' AND /price > {number} AND /qty >= 500", AMPS) for number in range(50)]

    def fifty() -> None:
        subject = MessageSubject(plain)
        for expression in many:
            expression.matches(subject)

    results["fifty filters"] = ratios(fifty, lambda: json.loads(octets), rounds)
    results["parse"] = {"us": took(lambda: parse(FILTERS["three comparisons"], AMPS))}
    results["compile"] = {"us": took(lambda: compiled(FILTERS["three comparisons"], AMPS))}
    results["compile a selector"] = {"us": took(lambda: compiled(SELECTOR, JMS))}
    return results


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = measure(arguments.rounds)
    for name, found in results.items():
        if isinstance(found, dict):
            print(f"{name:24}", "  ".join(f"{key} {value:.2f}" for key, value in found.items()))
    ratio = results["three comparisons"]["ratio"]
    print(f"goal: at most {GOAL}x json.loads: {'met' if ratio <= GOAL else 'missed'} ({ratio:.2f}x)")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
