"""Runs a program on two brokers, compares it step by step, and knows the intended differences."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from .channel_state import Operation
from .side import Observation, Performer

KNOWN_FILE = Path(__file__).with_name("known.toml")


@dataclass(frozen=True, slots=True)
class Known:
    """An intended difference.

    `reference`, `subject`: patterns that are searched in the JSON of the two brokers' observations.
    `deviation`: the beginning of its line in docs/DEVIATIONS.md.
    `ends`: the states of the brokers differ after it, so the rest of the program is not run.
    `last_deliveries`: it concerns only deliveries to connections that this operation ended; all else must be the same.
    """

    name: str
    deviation: str
    reference: re.Pattern[str]
    subject: re.Pattern[str]
    operation: re.Pattern[str]
    ends: bool
    last_deliveries: bool = False

    def explains(self, operation: Operation, expected: Observation, got: Observation) -> bool:
        """Whether this intended difference explains two observations of an operation."""
        return (
            self.operation.search(_text(operation)) is not None
            and self.reference.search(_text(expected)) is not None
            and self.subject.search(_text(got)) is not None
            and (not self.last_deliveries or _differ_by_last_deliveries(expected, got))
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """The two brokers' observations of operation `step` of a program."""

    step: int
    operation: Operation
    expected: Observation
    got: Observation

    def __str__(self) -> str:
        lines = [f"operation {self.step}: {_text(self.operation)}"]
        for key in dict.fromkeys([*self.expected, *self.got]):
            expected, got = self.expected.get(key), self.got.get(key)
            if expected != got:
                lines += [f"  {key}", f"    reference  {_text(expected)}", f"    subject    {_text(got)}"]
        return "\n".join(lines)


@dataclass(slots=True)
class Tally:
    """Counts of a run: operations that were compared, and programs by their result."""

    operations: int = 0
    programs: int = 0
    methods: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    batches: int = 0  # steps with several operations
    races: int = 0  # programs that did not differ when they had more time

    def add(self, other: Tally) -> None:
        self.operations += other.operations
        self.programs += other.programs
        self.batches += other.batches
        self.races += other.races
        for mine, theirs in ((self.methods, other.methods), (self.errors, other.errors), (self.known, other.known)):
            mine.update(theirs)


@cache
def known_differences() -> tuple[Known, ...]:
    """The intended differences in `known.toml`. Raises: KeyError, re.error: the file is invalid."""
    return tuple(
        Known(
            entry["name"],
            entry["deviation"],
            re.compile(entry["reference"]),
            re.compile(entry["subject"]),
            re.compile(entry.get("operation", "")),
            entry["ends"],
            entry.get("last_deliveries", False),
        )
        for entry in tomllib.loads(KNOWN_FILE.read_text()).get("known", [])
    )


def run(
    program: Sequence[Operation], reference: Performer, subject: Performer, tally: Tally, *, patient: bool = False
) -> Difference | None:
    """Run a program on both brokers. Returns the first unknown difference; None: there is none."""
    try:
        for step, operation in enumerate(program):
            expected, got = _both(
                reference.perform(operation, step, patient=patient), subject.perform(operation, step, patient=patient)
            )
            tally.operations += reference.sent.total()
            tally.methods.update(reference.sent)
            tally.batches += operation["op"] == "batch"
            _count_errors(expected, tally)
            verdict = judge(operation, expected, got)
            if isinstance(verdict, Known):
                tally.known[verdict.name] += 1
                if verdict.ends:
                    return None
            elif verdict:
                return Difference(step, operation, expected, got)
        return None
    finally:
        tally.programs += 1
        reference.clean_up()
        subject.clean_up()


def judge(operation: Operation, expected: Observation, got: Observation) -> Known | bool:
    """False: there is no difference. True: an unknown one. Otherwise: the known one."""
    if expected == got:
        return False
    for known in known_differences():
        if known.explains(operation, expected, got):
            return known
    return True


def _differ_by_last_deliveries(expected: Observation, got: Observation) -> bool:
    """Whether only deliveries to ended connections differ, and the counts of queues that depend on them."""
    if _without_last_deliveries(expected) != _without_last_deliveries(got):
        return False
    last = sum(
        len(seen.get("deliveries", ())) for place, seen in expected.items() if _is_of_ended(place, expected["ended"])
    )
    theirs, ours = expected["queues"], got["queues"]
    differing = [name for name in theirs if theirs[name] != ours.get(name)]
    if theirs.keys() != ours.keys() or not all(
        isinstance(theirs[name], list) and isinstance(ours[name], list) and theirs[name][1] == ours[name][1]
        for name in differing
    ):
        return False
    left = [ours[name][0] - theirs[name][0] for name in differing]
    return all(count > 0 for count in left) and sum(left) <= last


def _is_of_ended(place: str, ended: Sequence[int]) -> bool:
    return "/" in place and int(place.split("/")[0]) in ended


def _without_last_deliveries(observation: Observation) -> Observation:
    """The observations without deliveries to connections that the broker ended, and without the counts of queues."""
    kept: Observation = {}
    for place, seen in observation.items():
        if place == "queues":
            continue
        if _is_of_ended(place, observation.get("ended", ())):
            seen = {kind: what for kind, what in seen.items() if kind != "deliveries"}
        if seen:
            kept[place] = seen
    return kept


def _both(reference: Iterator[None], subject: Iterator[None]) -> tuple[Observation, Observation]:
    """Run both sides in turns, so that one broker works while the other one is sent to."""
    results: dict[int, Any] = {}
    sides = {0: reference, 1: subject}
    while len(results) < 2:
        for index, side in sides.items():
            if index not in results:
                try:
                    next(side)
                except StopIteration as stop:
                    results[index] = stop.value
    return results[0], results[1]


def replay(program: Sequence[Operation], side: Performer) -> list[Observation]:
    """The observations of each operation on one broker."""
    observations: list[Observation] = []
    try:
        for step, operation in enumerate(program):
            steps = side.perform(operation, step)
            while True:
                try:
                    next(steps)
                except StopIteration as stop:
                    observations.append(stop.value)
                    break
    finally:
        side.clean_up()
    return observations


def _count_errors(observation: Mapping[str, Any], tally: Tally) -> None:
    for seen in observation.values():
        if isinstance(seen, dict):
            for answer in seen.get("answers", ()):
                if answer[0] in ("channel.close", "connection.close"):
                    tally.errors[f"{answer[0].split('.')[0]} {answer[1]['reply_code']}"] += 1


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
