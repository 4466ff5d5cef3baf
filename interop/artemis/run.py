"""Runs the scenarios on one broker and compares the results with the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .side import Outgoing, Received, Side
from .table import Scenario, Step, broker_xml

LATE_SECONDS = 5.0  # time limit for expected messages
QUIET_SECONDS = 0.2  # no message for this long: there are no more
SLACK_SECONDS = 0.02  # the broker may have started the delay before we read our clock
POLL_SECONDS = 0.01
CREDIT_OF_REST = 1000


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one scenario on one broker. `faults`: the differences from the table, by step."""

    scenario: str
    broker: str
    faults: tuple[str, ...]


def run(
    broker: str, make: Callable[[], Side], scenarios: Sequence[Scenario], tell: Callable[[Result], None]
) -> list[Result]:
    """Run the scenarios one after the other on one broker. `make`: connects to it."""
    results = []
    for scenario in scenarios:
        results.append(Result(scenario.name, broker, _faults(broker, make, scenario, scenarios)))
        tell(results[-1])
    return results


def _faults(
    broker: str, make: Callable[[], Side], scenario: Scenario, scenarios: Sequence[Scenario]
) -> tuple[str, ...]:
    """Run one scenario, with its own connections. Returns the faults."""
    try:
        side = make()
        try:
            return Trial(broker, side, scenario, scenarios).run()
        finally:
            side.end()
    except Exception as error:  # of a client library: this scenario failed, others may pass
        return (f"{type(error).__name__}: {error}",)


class Trial:
    """One scenario on one broker. `scenarios`: all that the broker is configured for, this one among them."""

    def __init__(self, broker: str, side: Side, scenario: Scenario, scenarios: Sequence[Scenario]) -> None:
        self._broker, self._side, self._scenario, self._scenarios = broker, side, scenario, scenarios
        self._taken: dict[str, list[Received]] = {}  # by consumer, unsettled
        self._last: dict[str, list[Received]] = {}
        self._settled_at = side.now()

    def run(self) -> tuple[str, ...]:
        """Run the scenario. Returns the faults."""
        faults = []
        for number, step in enumerate(self._scenario.steps, 1):
            fault = getattr(self, f"_{step.verb}")(step)
            if fault:
                faults.append(f"step {number} ({step.verb} {step.what}): {fault}")
        return tuple(faults)

    def _publish(self, step: Step) -> None:
        options = {key: value for key, value in step.arguments.items() if key != "to"}
        for body in step.what:
            self._side.publish(self._scenario.unique(step.arguments["to"]), Outgoing(body, **options))
        self._settled_at = self._side.now()

    def _consume(self, step: Step) -> None:
        self._taken[step.what] = []
        self._side.consume(step.what, self._scenario.unique(step.arguments["from"]), step.arguments.get("credit", 10))

    def _stop(self, step: Step) -> None:
        self._side.stop(step.what)

    def _take(self, step: Step) -> str:
        expected = step.expected(self._broker)
        received = self._side.receive(step.what, len(expected), LATE_SECONDS)
        waited = self._side.now() - self._settled_at
        self._taken[step.what] += received
        self._last[step.what] = received
        least = step.arguments.get("after", 0) / 1000
        if len(received) == len(expected) and waited + SLACK_SECONDS < least:
            return f"after {waited * 1000:.0f} ms already"
        return step.fault(self._broker, _bodies(step, received))

    def _failures(self, step: Step) -> str:
        return step.fault(self._broker, [one.failures for one in self._last[step.what]])

    def _origin(self, step: Step) -> str:
        own = self._scenario.unique("")
        return step.fault(self._broker, [one.origin.removeprefix(own) for one in self._last[step.what]])

    def _none(self, step: Step) -> str:
        received = self._side.receive(step.what, 1, step.arguments.get("ms", 200) / 1000)
        self._taken[step.what] += received
        return f"{received[0].body} came" if received else ""

    def _ack(self, step: Step) -> None:
        for body in step.arguments["of"]:
            held = self._taken[step.what]
            (received,) = (one for one in held if one.body == body)
            held.remove(received)
            self._settled_at = self._side.now()
            self._side.settle(step.what, step.verb, received)

    _nack = _reject = _ack

    def _fail(self, step: Step) -> str:
        for attempt in range(step.arguments["times"]):
            for body in step.arguments["of"]:
                received = self._side.receive(step.what, 1, LATE_SECONDS)
                if [one.body for one in received] != [body]:
                    return f"{[one.body for one in received]} instead of {body} at attempt {attempt + 1}"
                self._settled_at = self._side.now()
                self._side.settle(step.what, "nack", received[0])
        return ""

    def _release(self, step: Step) -> None:
        self._settled_at = self._side.now()
        self._side.release(step.what, self._taken[step.what])
        self._taken[step.what] = []

    def _close(self, step: Step) -> None:
        self._settled_at = self._side.now()
        self._side.close(step.what)

    def _drop(self, step: Step) -> None:
        self._settled_at = self._side.now()
        self._side.drop(step.what)

    def _rest(self, step: Step) -> str:
        expected = step.expected(self._broker)
        self._side.consume("rest", self._scenario.unique(step.what), CREDIT_OF_REST)
        received = self._side.receive("rest", len(expected), LATE_SECONDS) if expected else []
        received += self._side.receive("rest", CREDIT_OF_REST, QUIET_SECONDS)
        for one in received:
            self._side.settle("rest", "ack", one)
        self._side.close("rest")
        return step.fault(self._broker, _bodies(step, received))

    def _counts(self, step: Step) -> str:
        expected = step.expected(self._broker)
        deadline = self._side.now() + LATE_SECONDS
        while True:
            counts = self._side.counts(self._scenario.unique(step.what))
            seen = {key: counts[key] for key in expected}
            fault = step.fault(self._broker, seen)
            if not fault or self._side.now() > deadline:
                return fault
            self._side.wait(POLL_SECONDS)

    def _gone(self, step: Step) -> str:
        deadline = self._side.now() + LATE_SECONDS
        while self._side.has(self._scenario.unique(step.what)):
            if self._side.now() > deadline:
                return "it is still there"
            self._side.wait(POLL_SECONDS)
        return ""

    def _pause(self, step: Step) -> None:
        self._side.wait(step.what / 1000)

    def _restart(self, step: Step) -> None:
        self._taken.clear()
        self._side.restart(kill=step.what == "kill")

    def _configure(self, step: Step) -> None:
        changed = replace(self._scenario, **step.what)
        self._side.configure(broker_xml([changed if one is self._scenario else one for one in self._scenarios]))


def _bodies(step: Step, received: Sequence[Received]) -> str:
    bodies = [one.body for one in received]
    return "".join(sorted(bodies) if step.arguments.get("any-order") else bodies)
