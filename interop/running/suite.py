"""Runs all scenarios by all clients on one broker, which the clients share, side by side."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..brokers.broker import Broker
from .driver import Driver, DriverFailed, Hello
from .run import FAILED, LACKS, NOT_RUN, Client, Result, Run, lacking
from .scenario import Scenario


class Driven:
    """A client and its driver. A driver that ended or hung is restarted for the next operation."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command, self._log = command, log
        self._driver: Driver | None = Driver(command, log)
        self.hello: Hello = self._driver.hello

    def ask(self, operation: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        if self._driver is None:
            self._driver = Driver(self._command, self._log)
        try:
            return self._driver.ask(operation, seconds)
        except DriverFailed:
            self.end()
            raise

    def end(self) -> None:
        if self._driver is not None:
            self._driver.end()
            self._driver = None


class Gate:
    """A barrier for the runs of a scenario before a control of the broker. The last run to arrive runs the control."""

    def __init__(self, controls: Mapping[str, Callable[[], object]], parties: int) -> None:
        self._controls, self._parties = controls, parties
        self._waiting: list[str] = []
        self._generation = 0
        self._changed = threading.Condition()
        self._failure: Exception | None = None

    def control(self, name: str) -> None:
        """Wait for the other runs and for the control. Raises: the exception of the control."""
        with self._changed:
            generation = self._generation
            self._waiting.append(name)
            self._act_when_all_are_here()
            self._changed.wait_for(lambda: self._generation != generation)
            if self._failure is not None:
                raise DriverFailed(f"{name}: {self._failure}")

    def leave(self) -> None:
        """A run has ended, so others must not wait for it."""
        with self._changed:
            self._parties -= 1
            self._act_when_all_are_here()

    def _act_when_all_are_here(self) -> None:
        if not self._waiting or len(self._waiting) < self._parties:
            return
        try:
            self._controls[self._waiting[0]]()
        except Exception as error:  # all waiting runs must be notified
            self._failure = error
        self._waiting.clear()
        self._generation += 1
        self._changed.notify_all()


@dataclass(slots=True)
class Suite:
    """Runs scenarios by clients and collects the results."""

    broker: Broker
    clients: Mapping[str, Client]
    seconds: float = 15.0
    tell: Callable[[Result], None] = lambda result: None
    results: list[Result] = field(default_factory=list)

    def run(self, scenarios: Iterable[Scenario]) -> list[Result]:
        """Run all scenarios: those with one role by each client, others by each combination of clients."""
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(max_workers=max(1, len(self.clients))))
            for scenario in scenarios:
                if self.broker.is_frail:
                    self.broker.revive()  # an earlier scenario may have made the broker hang
                if len(scenario.roles) == 1:
                    self._side_by_side(scenario, pool)
                else:
                    self._matrix(scenario, pool)
        return self.results

    def _side_by_side(self, scenario: Scenario, pool: ThreadPoolExecutor) -> None:
        able = {}
        for name, client in self.clients.items():
            cast = {scenario.roles[0]: client}
            if not self._is_left_out(scenario, cast):
                able[name] = cast
        gate = Gate(self.broker.controls, len(able))
        self._note_all(list(pool.map(lambda cast: self._one(scenario, cast, gate), able.values())))

    def _matrix(self, scenario: Scenario, pool: ThreadPoolExecutor) -> None:
        """Run a scenario by all combinations of clients. Those without a common client run in parallel."""
        combinations = itertools.product(self.clients.values(), repeat=len(scenario.roles))
        casts = [dict(zip(scenario.roles, combination, strict=True)) for combination in combinations]
        left = [cast for cast in casts if not self._is_left_out(scenario, cast)]
        while left:
            batch, busy = [], set[int]()
            for cast in left:
                if not busy & {id(client) for client in cast.values()}:
                    batch.append(cast)
                    busy |= {id(client) for client in cast.values()}
            left = [cast for cast in left if cast not in batch]
            gate = Gate(self.broker.controls, len(batch))
            results = pool.map(self._one, itertools.repeat(scenario), batch, itertools.repeat(gate))
            self._note_all(list(results))

    def _is_left_out(self, scenario: Scenario, cast: Mapping[str, Client]) -> bool:
        names = tuple(client.hello.client for client in cast.values())
        if why := self.broker.lacking(scenario.needs):
            self._note(Result(scenario.name, names, NOT_RUN, why))
        elif why := lacking(scenario, cast):
            self._note(Result(scenario.name, names, LACKS, why))
        else:
            return False
        return True

    def _one(self, scenario: Scenario, cast: Mapping[str, Client], gate: Gate) -> Result:
        seconds = min(self.seconds, self.broker.seconds_max)
        names = tuple(client.hello.client for client in cast.values())
        try:
            return Run(scenario, cast, self.broker, gate.control, seconds).result()
        except Exception as error:  # a bug of the runner fails only this scenario
            return Result(scenario.name, names, FAILED, f"{type(error).__name__}: {error}")
        finally:
            gate.leave()

    def _note_all(self, results: list[Result]) -> None:
        """Add the results of parallel runs. If the broker has crashed, they say so, and it is restarted."""
        crashed = any(result.verdict == FAILED for result in results) and self.broker.revive()
        for result in results:
            if crashed and result.verdict == FAILED:
                result = replace(result, reason=f"{result.reason} (the broker crashed)")
            self._note(result)

    def _note(self, result: Result) -> None:
        self.results.append(result)
        self.tell(result)
