"""Patterns of filters: the engine for each, and the cost of a search.

There are three engines. `search` uses `re`, if it has few alternatives to try; else the automaton, whose time is
linear; for patterns with references, which an automaton cannot match, the backtracker. `spans` needs groups, which the
automaton does not have: it uses `re` or the backtracker. All work is charged in units of about 10 ns; `Charge` raises
to end an evaluation. Source: queues page B.2 (choice 10); ruling 19.
"""

import re
from collections.abc import Callable, Iterator

from .automaton import Automaton
from .backtracking import Backtracker
from .pattern_syntax import Alternation, Concatenation, Group, LookAhead, Node, Reference, Repeat, parse_pattern
from .translated import Translated, Untranslatable, translated

#: Takes units of about 10 ns; raises an exception to end the evaluation when they exceed the limit.
Charge = Callable[[int], None]
#: Units in the automaton for each character, and in addition, if its set of nodes is not cached, for each node.
CACHED, UNCACHED = 50, 30
#: Units of a step of the backtracker, or of a match of `re`.
STEP = 80
#: Maximum units of `re`: a constant part, and a part for each character.
RE_MAX, RE_MAX_EACH = 20_000, 20


class Searcher:
    """A pattern of a filter. Raises: PatternFault."""

    def __init__(self, text: str) -> None:
        tree = parse_pattern(text, references=True)
        self._tree = tree
        self._has_references = _has_references(tree)
        self._automaton: Automaton | None = None
        self._backtracker: Backtracker | None = None
        self._translated: Translated | None = None
        try:
            self._translated = translated(tree)
        except Untranslatable:
            if self._has_references:
                self._backtracker = Backtracker(tree)
            else:
                self._automaton = Automaton(tree)

    def search(self, text: str, charge: Charge) -> bool:
        """Whether it is found anywhere."""
        if (pattern := self._quick(text, charge)) is not None:
            return pattern.search(text) is not None
        if self._has_references:
            return self._backtracking().find(text, 0, _per_step(charge)) is not None
        if self._automaton is None:
            self._automaton = Automaton(self._tree)
        automaton = self._automaton
        charge(CACHED * len(text))
        return automaton.search(text, lambda: charge(UNCACHED * automaton.size))

    def spans(self, text: str, charge: Charge) -> Iterator[list[int]]:
        """For each match, in order: start and end of the whole and of each group (-1: it did not match)."""
        if (pattern := self._quick(text, charge)) is not None:
            for match in pattern.finditer(text):
                charge(STEP)
                yield [place for number in range(pattern.groups + 1) for place in match.span(number)]
            return
        start, takes_empty = 0, True
        while True:
            slots = self._backtracking().find(text, start, _per_step(charge), takes_empty=takes_empty)
            if slots is None:
                return
            yield slots
            start, takes_empty = slots[1], slots[0] != slots[1]  # no second empty match at the same position

    def _quick(self, text: str, charge: Charge) -> "re.Pattern[str] | None":
        """The pattern for `re`, if its time is bounded."""
        found = self._translated
        if found is None:
            return None
        steps = found.steps(len(text))
        if steps > RE_MAX + RE_MAX_EACH * len(text):
            return None
        charge(steps)
        return found.pattern

    def _backtracking(self) -> Backtracker:
        if self._backtracker is None:
            self._backtracker = Backtracker(self._tree)
        return self._backtracker


def check_pattern(text: str) -> None:
    """Check that `search` and `spans` can use a pattern: the backtracker has a limit of its own.

    Raises: PatternFault.
    """
    Backtracker(Searcher(text)._tree)


def _per_step(charge: Charge) -> Charge:
    return lambda steps: charge(STEP * steps)


def _has_references(node: Node) -> bool:
    if isinstance(node, Concatenation | Alternation):
        return any(map(_has_references, node.parts))
    if isinstance(node, Group | Repeat | LookAhead):
        return _has_references(node.part)
    return isinstance(node, Reference)
