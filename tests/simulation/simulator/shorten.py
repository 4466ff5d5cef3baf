"""A plan that breaks a world, with less in it: delta debugging of faults, clients, queues and time.

A smaller plan counts if it breaks by the same kind of fault. What is left out changes the chance of the rest, so each
is tried under a few seeds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic
from typing import Any

from .plan import Plan
from .world import Report, World

Run = Callable[[Plan], Report]
#: Seeds that a smaller plan is tried under.
SEEDS = 2
#: Seconds behind the moment of the fault that a plan still has.
TAIL_S = 1.0


def run_plan(plan: Plan) -> Report:
    """To its end."""
    return World(plan).run()


def kind_of(fault: str) -> str:
    """What a message of two runs has in common: its words, without numbers, names and lists."""
    return re.sub(r"\d[\d.,]*|\[.*\]|\(.*\)|'[^']*'|b\"[^\"]*\"", "#", fault)[:60]


def shorten(plan: Plan, report: Report, seconds: float, run: Run = run_plan) -> tuple[Plan, Report]:
    """The smallest plan that is found in so many real seconds, and how it breaks."""
    assert report.fault is not None
    return _Search(plan, report, monotonic() + seconds, run).search()


class _Search:
    def __init__(self, plan: Plan, report: Report, end: float, run: Run) -> None:
        self._plan = plan
        self._report = report
        self._kind = kind_of(report.fault or "")
        self._end = end
        self._run = run

    def search(self) -> tuple[Plan, Report]:
        """Until nothing more can be left out, or the time is over."""
        while True:
            before = self._size()
            self._cut_time()
            for name in ("faults", "clients"):
                self._leave_out(name)
            for plan in self._without_a_queue():
                self._try(plan)
            if self._size() == before or self._is_over:
                return self._plan, self._report

    @property
    def _is_over(self) -> bool:
        return monotonic() > self._end

    def _size(self) -> tuple[int, ...]:
        plan = self._plan
        return len(plan.faults), len(plan.clients), len(plan.queues), int(plan.seconds)

    def _try(self, plan: Plan) -> bool:
        """Whether it breaks in the same way; then it is what the search goes on with."""
        for more in range(SEEDS):
            if self._is_over:
                return False
            of_seed = replace(plan, seed=plan.seed + more)
            report = self._run(of_seed)
            if report.fault is not None and kind_of(report.fault) == self._kind:
                self._plan, self._report = of_seed, report
                return True
        return False

    def _cut_time(self) -> None:
        """What comes after the fault, then as much as can be."""
        while self._plan.seconds > self._report.virtual_s + TAIL_S and self._try(
            _until(self._plan, self._report.virtual_s + TAIL_S)
        ):
            pass
        for part in (0.3, 0.6, 0.9):
            while self._plan.seconds > 1 and self._try(_until(self._plan, self._plan.seconds * part)):
                pass

    def _leave_out(self, name: str) -> None:
        """Halves, quarters, single ones."""
        count = max(len(getattr(self._plan, name)) // 2, 1)
        while count:
            at = 0
            while at < len(there := getattr(self._plan, name)):
                if not self._try(_with(self._plan, name, there[:at] + there[at + count :])):
                    at += count
            count //= 2

    def _without_a_queue(self) -> Iterator[Plan]:
        """Where no client needs it."""
        for queue in list(self._plan.queues):
            plan = self._plan
            clients = [client for client in plan.clients if queue.name not in _words(client.options)]
            exchanges = [
                replace(one, bindings=[to for to in one.bindings if to[:2] != [queue.name, True]])
                for one in plan.exchanges
            ]
            queues = [one for one in plan.queues if one.name != queue.name]
            yield replace(plan, queues=queues, clients=clients, exchanges=exchanges)


def _with(plan: Plan, name: str, entries: list[Any]) -> Plan:
    return replace(plan, **{name: entries})


def _until(plan: Plan, seconds: float) -> Plan:
    return replace(plan, seconds=seconds, faults=[fault for fault in plan.faults if fault.at_s <= seconds])


def _words(value: Any) -> set[Any]:
    """All texts in it."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return {word for one in value for word in _words(one)}
    return {value}
