"""Generates and compares programs, and minimises those that differ."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .channel_state import Operation
from .choices import QUEUES, Chooser, Seeded
from .comparison import Difference, Tally, replay, run
from .operations import EXCHANGES
from .programs import program
from .side import Observation, Performer

FOUND_MAX = 5
SHRINKING_RUNS_MAX = 400
WAVERING_RUNS_MAX = 6
#: Fields that minimising does not remove, since operations cannot be sent without them.
NEEDED = {
    "op", "c", "ch", "unopened", "active", "consumer_tag", "delivery_tag", "queue", "exchange", "operations", "what",
}  # fmt: skip


@dataclass(slots=True)
class Found:
    """A minimal program with a difference, and the seed of its original program."""

    program: Sequence[Operation]
    seed: int
    difference: Difference
    expected: Sequence[Observation] = ()  # the reference's observations of each operation


@dataclass(slots=True)
class Search:
    """A lane: runs programs one after the other in a virtual host of each broker."""

    reference: Performer
    subject: Performer
    generate: Callable[[Chooser], Sequence[Operation]] = program
    tally: Tally = field(default_factory=Tally)
    shrinking: Tally = field(default_factory=Tally)  # counts of the runs that minimise, which are not reported
    found: list[Found] = field(default_factory=list)
    found_max: int = FOUND_MAX
    shrinks: bool = True
    number: int = 0  # the seed of the program that is run

    def until(
        self,
        operations: int,
        seed: int,
        tell: Callable[[str, Any], None] = lambda kind, value: None,
        seconds: float = math.inf,
    ) -> None:
        """Run programs until `operations` were compared, `found_max` differences were found, or `seconds` are over.

        The seeds of the programs are seed * 1,000,003 and the following numbers, so that a lane can be repeated.
        """
        self.number = number = seed * 1_000_003
        for side in (self.reference, self.subject):
            side.clean_up(QUEUES, EXCHANGES)
        deadline = time.monotonic() + seconds
        while self.tally.operations < operations and len(self.found) < self.found_max and time.monotonic() < deadline:
            found = self.examine(Seeded(number))
            if found is not None:
                self.found.append(found)
                tell("found", found)
            self.number = number = number + 1
            if number % 10 == 0:
                tell("progress", self.tally.operations)

    def examine(self, choices: Seeded) -> Found | None:
        """Generate and run a program. Returns a difference with the minimal program; None: there is none."""
        operations = self.generate(choices)
        difference = self.differs(operations, self.tally)
        if difference is None:
            return None
        found = Found(operations[: difference.step + 1], choices.seed, difference)
        if self.shrinks:
            found = self._shrink(found)
        found.expected = replay(found.program, self.reference)
        return found

    def _shrink(self, found: Found) -> Found:
        """Remove what the difference does not need: operations, half of them at first, parts of batches, and fields."""
        last_run = self.shrinking.programs + SHRINKING_RUNS_MAX
        step = max(1, len(found.program) // 2)
        while self.shrinking.programs < last_run:
            before = found.program
            for at in range(len(found.program) - step, -step, -step):
                found = self._smaller(found, [*found.program[: max(0, at)], *found.program[at + step :]])
            if step == 1 and len(found.program) == len(before):
                break
            step = max(1, step // 2)
        for at in range(len(found.program)):
            if at >= len(found.program):
                break
            for index in reversed(range(len(found.program[at].get("operations", ())))):
                if self.shrinking.programs < last_run and at < len(found.program):
                    inner = found.program[at]["operations"]
                    fewer = {**found.program[at], "operations": [*inner[:index], *inner[index + 1 :]]}
                    found = self._smaller(found, [*found.program[:at], fewer, *found.program[at + 1 :]])
            if at >= len(found.program):
                break
            for key in [key for key in found.program[at] if key not in NEEDED]:
                fewer = {name: value for name, value in found.program[at].items() if name != key}
                if self.shrinking.programs < last_run:
                    found = self._smaller(found, [*found.program[:at], fewer, *found.program[at + 1 :]])
        return found

    def _smaller(self, found: Found, candidate: Sequence[Operation]) -> Found:
        difference = self.differs(candidate, self.shrinking) if candidate else None
        if difference is None:
            return found
        return Found(candidate[: difference.step + 1], found.seed, difference)

    def differs(self, program: Sequence[Operation], tally: Tally) -> Difference | None:
        """The difference of a program. It is a race, and ignored, if the program does not differ with more time, or if
        the reference sometimes answers like the subject.
        """
        difference = run(program, self.reference, self.subject, tally)
        if difference is None:
            return None
        slowly = run(program, self.reference, self.subject, self.shrinking, patient=True)
        if slowly is None or self._wavers(program, slowly):
            tally.races += 1
            return None
        return slowly

    def _wavers(self, program: Sequence[Operation], difference: Difference) -> bool:
        """Whether the reference sometimes answers the operation like the subject."""
        step = difference.step
        return any(
            replay(program[: step + 1], self.reference)[step] == difference.got for _ in range(WAVERING_RUNS_MAX)
        )
