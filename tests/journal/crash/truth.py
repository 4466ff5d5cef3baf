"""What may be there after a crash, as a client can know it: facts, and the operations that make and unmake them.

A fact is anything that is there or not: a message in a queue, how often it was tried, a queue, a binding, a policy.
Each *line* (a connection) did operations in an order. The journal keeps whole turns, in order, and a crash cuts its
end off. So what is there must be what was there at the last look, and of each line's operations

- the first so many, with none left out between: at least up to the last one whose answer came, and
- each of them whole: a message in all its queues, a transaction with all its publishes and acknowledgements, a dead
  letter in exactly one of the two queues.

How many is what the client cannot know; everything else it can.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

Fact = tuple[Hashable, ...]
Line = Hashable


class Broken(Exception):
    """A rule was broken; says which."""


@dataclass(slots=True, eq=False)
class Operation:
    """What one turn does, whole or not at all. `index`: among those of its line since the last look."""

    line: Line
    index: int
    what: str
    adds: Sequence[Fact]
    removes: Sequence[Fact]

    def __str__(self) -> str:
        return f"operation {self.index} of line {self.line} ({self.what})"


class Truth:
    """See the module. `here`: as the last look found it; `now`: if everything since was done."""

    def __init__(self) -> None:
        self.here: set[Fact] = set()
        self.now: set[Fact] = set()
        self._lines: dict[Line, list[Operation]] = {}
        self._done: dict[Line, int] = {}  # so many of each line's operations are durable
        self._made: dict[Fact, Operation] = {}
        self._unmade: dict[Fact, Operation] = {}

    def did(self, line: Line, what: str, adds: Sequence[Fact] = (), removes: Sequence[Fact] = ()) -> Operation:
        """An operation is about to be sent. A fact is made and unmade at most once between two looks."""
        operations = self._lines.setdefault(line, [])
        operation = Operation(line, len(operations), what, adds, removes)
        operations.append(operation)
        for fact in adds:
            assert fact not in self._made and fact not in self.here, fact
            self._made[fact] = operation
        for fact in removes:
            assert fact not in self._unmade and (fact in self.here or fact in self._made), fact
            self._unmade[fact] = operation
        self.now.update(adds)
        self.now.difference_update(removes)
        return operation

    def can_be_made(self, fact: Fact) -> bool:
        """Whether it is not there, and was not since the last look."""
        return fact not in self.here and fact not in self._made

    def is_sure(self, fact: Fact) -> bool:
        """Whether it was made for sure, whatever became of it since."""
        maker = self._made.get(fact)
        return fact in self.here or (maker is not None and maker.index < self._done.get(maker.line, 0))

    def answered(self, operation: Operation) -> None:
        """The broker said that it is durable: so is everything before it on its line."""
        self._done[operation.line] = max(self._done.get(operation.line, 0), operation.index + 1)

    @property
    def open_count(self) -> int:
        """Operations whose fate is not known."""
        return sum(len(operations) - self._done.get(line, 0) for line, operations in self._lines.items())

    def look(self, facts: Iterable[Fact]) -> None:
        """Compare with what a restarted broker has; from then on that is what was there. Raises: Broken."""
        found: set[Fact] = set()
        for fact in facts:
            if fact in found:
                raise Broken(f"{fact} is there more than once")
            found.add(fact)
        _Evidence(self._done, {line: len(ones) for line, ones in self._lines.items()}).weigh(
            self.here, self._made, self._unmade, found
        )
        self.here, self.now = found, set(found)
        self._lines.clear()
        self._done.clear()
        self._made.clear()
        self._unmade.clear()


class _Evidence:
    """How many operations of each line were done: at least, at most, and which fact says so."""

    def __init__(self, done: dict[Line, int], sent: dict[Line, int]) -> None:
        self._least = {line: done.get(line, 0) for line in sent}
        self._most = dict(sent)
        self._why_least = dict.fromkeys(sent, "its answer came")
        self._why_most = dict.fromkeys(sent, "")
        self._has_changed = False

    def weigh(
        self, before: set[Fact], made: dict[Fact, Operation], unmade: dict[Fact, Operation], found: set[Fact]
    ) -> None:
        """Raises: Broken, when no number fits all facts."""
        if strange := found - before - made.keys():
            raise Broken(f"{_some(strange)} there, but never made, or gone for good before")
        if lost := before - unmade.keys() - found:
            raise Broken(f"{_some(lost)} lost: there at the last look, and nobody took it away")
        both = [(fact, made.get(fact), one) for fact, one in unmade.items() if fact not in found]
        for fact, operation in made.items():
            if fact in found:
                self._is_done(operation, f"{fact} is there")
            elif fact not in unmade:
                self._is_not_done(operation, f"{fact} is not there")
        for fact, operation in unmade.items():
            if fact in found:
                self._is_not_done(operation, f"{fact} is there")
        self._has_changed = True
        while self._has_changed:  # absent: either never made, or unmade again
            self._has_changed = False
            for fact, maker, remover in both:
                if maker is None or maker.index < self._least[maker.line]:
                    self._is_done(remover, f"{fact} is not there")
                elif remover.index >= self._most[remover.line]:
                    self._is_not_done(maker, f"{fact} is not there")
                elif remover.index < self._least[remover.line]:
                    self._is_done(maker, f"{fact} was taken away")
                elif maker.index >= self._most[maker.line]:
                    self._is_not_done(remover, f"{fact} was never made")

    def _is_done(self, operation: Operation, why: str) -> None:
        line = operation.line
        if self._least[line] <= operation.index:
            self._least[line] = operation.index + 1
            self._why_least[line] = f"{operation} was done: {why}"
            self._has_changed = True
            self._check(line)

    def _is_not_done(self, operation: Operation, why: str) -> None:
        line = operation.line
        if self._most[line] > operation.index:
            self._most[line] = operation.index
            self._why_most[line] = f"{operation} was not done: {why}"
            self._has_changed = True
            self._check(line)

    def _check(self, line: Line) -> None:
        if self._least[line] > self._most[line]:
            raise Broken(
                f"of line {line} at least {self._least[line]} operations must have been done ({self._why_least[line]}),"
                f" and at most {self._most[line]} ({self._why_most[line]})"
            )


def _some(facts: set[Fact]) -> str:
    shown = ", ".join(map(str, sorted(facts, key=str)[:5]))
    return f"{len(facts)} facts such as {shown} are"
