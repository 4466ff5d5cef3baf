"""Runs the scenarios on one broker and says what it showed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..peers import Peer
from .sides import Side, Taken
from .table import Scenario, Step

LATE_SECONDS = 5.0  # what has to come, comes within that
QUIET_SECONDS = 0.2  # nothing more comes for that long: it is all
SLACK_SECONDS = 0.02  # the other side's clock began before we looked at ours
CREDIT_OF_REST = 1000


@dataclass(frozen=True, slots=True)
class Shown:
    """What a broker showed in one scenario: `faults` are what it should have shown otherwise, step by step."""

    scenario: str
    broker: str
    faults: tuple[str, ...]


def run(
    peer: Peer, make: Callable[[Peer], Side], scenarios: Sequence[Scenario], tell: Callable[[Shown], None]
) -> list[Shown]:
    """Every scenario in turn. `peer` may be restarted by one."""
    results = []
    for scenario in scenarios:
        trial = Trial(peer, make, scenario)
        try:
            faults = trial.run()
        except Exception as error:  # a client library's, of whatever kind: this scenario failed, the next may not
            faults = (f"{type(error).__name__}: {error}",)
        finally:
            trial.side.end()
        results.append(Shown(scenario.name, peer.name, faults))
        tell(results[-1])
    return results


class Trial:
    """One scenario on one broker."""

    def __init__(self, peer: Peer, make: Callable[[Peer], Side], scenario: Scenario) -> None:
        self.side = make(peer)
        self._peer, self._make, self._scenario = peer, make, scenario
        self._taken: dict[str, list[Taken]] = {}  # by consumer, unsettled
        self._last: dict[str, list[Taken]] = {}
        self._settled_at = time.monotonic()

    def run(self) -> tuple[str, ...]:
        """What was not as expected."""
        faults = []
        for number, step in enumerate(self._scenario.steps, 1):
            fault = getattr(self, f"_{step.verb}")(step)
            if fault:
                faults.append(f"step {number} ({step.verb} {step.what}): {fault}")
        return tuple(faults)

    def _publish(self, step: Step) -> None:
        options = {key: step.arguments[key] for key in ("ttl", "delay", "priority") if key in step.arguments}
        for body in step.what:
            self.side.publish(self._scenario.own(step.arguments["to"]), body, **options)
        self._settled_at = time.monotonic()

    def _consume(self, step: Step) -> None:
        self._taken[step.what] = []
        self.side.consume(step.what, self._scenario.own(step.arguments["from"]), step.arguments.get("credit", 10))

    def _stop(self, step: Step) -> None:
        self.side.stop(step.what)

    def _take(self, step: Step) -> str:
        expected = step.expected(self._peer.name)
        taken = self.side.receive(step.what, len(expected), LATE_SECONDS)
        waited = time.monotonic() - self._settled_at
        self._taken[step.what] += taken
        self._last[step.what] = taken
        bodies = "".join(one.body for one in taken)
        least = step.arguments.get("after", 0) / 1000
        if bodies == expected and waited + SLACK_SECONDS < least:
            return f"after {waited * 1000:.0f} ms already"
        return _compared(bodies, expected)

    def _failures(self, step: Step) -> str:
        return _compared([one.failures for one in self._last[step.what]], step.expected(self._peer.name))

    def _none(self, step: Step) -> str:
        taken = self.side.receive(step.what, 1, step.arguments.get("ms", 200) / 1000)
        self._taken[step.what] += taken
        return f"{taken[0].body} came" if taken else ""

    def _ack(self, step: Step) -> None:
        for body in step.arguments["of"]:
            held = self._taken[step.what]
            (taken,) = (one for one in held if one.body == body)
            held.remove(taken)
            self._settled_at = time.monotonic()
            self.side.settle(step.what, step.verb, taken)

    _nack = _reject = _ack

    def _release(self, step: Step) -> None:
        self._settled_at = time.monotonic()
        self.side.release(step.what, self._taken[step.what])
        self._taken[step.what] = []

    def _close(self, step: Step) -> None:
        self._settled_at = time.monotonic()
        self.side.close(step.what)

    def _drop(self, step: Step) -> None:
        self._settled_at = time.monotonic()
        self.side.drop(step.what)

    def _rest(self, step: Step) -> str:
        expected = step.expected(self._peer.name)
        self.side.consume("rest", self._scenario.own(step.what), CREDIT_OF_REST)
        taken = self.side.receive("rest", len(expected), LATE_SECONDS) if expected else []
        taken += self.side.receive("rest", CREDIT_OF_REST, QUIET_SECONDS)
        for one in taken:
            self.side.settle("rest", "ack", one)
        self.side.close("rest")
        return _compared("".join(one.body for one in taken), expected)

    def _counts(self, step: Step) -> str:
        expected = step.expected(self._peer.name)
        deadline = time.monotonic() + LATE_SECONDS
        while True:
            said = self.side.counts(self._scenario.own(step.what))
            seen = {key: said[key] for key in expected}
            if seen == expected or time.monotonic() > deadline:
                return _compared(seen, expected)

    def _pause(self, step: Step) -> None:
        time.sleep(step.what / 1000)

    def _restart(self, step: Step) -> None:
        self.side.end()
        self._taken.clear()
        self._peer.restart(kill=step.what == "kill")
        self.side = self._make(self._peer)


def _compared(seen: Any, expected: Any) -> str:
    return "" if seen == expected else f"{seen!r} instead of {expected!r}"
