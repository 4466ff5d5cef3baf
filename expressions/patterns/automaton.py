"""An automaton for patterns without references: it searches a text in linear time, whatever the pattern.

The pattern becomes a graph with numbered nodes. A text is read from its end; after each character the set of nodes from
which the rest matches is known (one int, one bit per node). Known sets are cached, so that a usual text costs one dict
access per character; the cache is bounded and cleared when it is full. There is no backtracking. Source: R. Cox,
"Regular Expression Matching Can Be Simple And Fast".
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from .pattern_syntax import Alternation, Anchor, CharClass, Concatenation, Group, Node, PatternFault, Reference, Repeat

NODES_MAX = 1000
#: Maximum steps of compiling. Nested empty groups make no nodes, so `NODES_MAX` does not bound the steps.
STEPS_MAX = 20 * NODES_MAX
#: Maximum cached sets of nodes.
CACHED_MAX = 2000

#: What a cached set depends on: the set after the character, the character (None at the end), the kind of the one
#: before it (see the next line), and whether it is the last one.
_Key: TypeAlias = tuple[int, str | None, int, bool]
_NOTHING, _WORD, _OTHER = 0, 1, 2


class Automaton:
    """A compiled tree without references. `search` finds it anywhere in a text, unless it is anchored.

    `size`: number of nodes, which is the cost of a character that is not cached. Raises: PatternFault.
    """

    def __init__(self, tree: Node) -> None:
        self._graph = _Graph(tree)
        self.size = self._graph.size
        self._known: dict[_Key, int] = {}

    def search(self, text: str, on_uncached: Callable[[], object] | None = None) -> bool:
        """Whether the pattern is found. O(length of the text). `on_uncached`: called for each character that costs
        `size`.
        """
        known, start = self._known, self._graph.start
        after = 0
        for position in range(len(text), -1, -1):
            character = text[position] if position < len(text) else None
            before = _kind(text[position - 1]) if position else _NOTHING
            key = (after, character, before, position >= len(text) - 1)
            found = known.get(key)
            if found is None:
                if on_uncached is not None:
                    on_uncached()
                if len(known) >= CACHED_MAX:
                    known.clear()
                found = known[key] = self._graph.matching(*key)
            if found & start:
                return True
            after = found
        return False


def _kind(character: str) -> int:
    return _WORD if character.isascii() and (character.isalnum() or character == "_") else _OTHER


class _Graph:
    """Nodes by number. A node consumes a character and names its follower, or is a condition on other nodes."""

    def __init__(self, tree: Node) -> None:
        self._consuming: list[tuple[int, CharClass, int]] = []  # bit, characters, follower's bit
        #: Node -> what must hold, and of which nodes: "either", "ahead", "not ahead", or an anchor's place.
        self._conditions: dict[int, tuple[str, int, int]] = {}
        #: Groups of conditions, evaluated in this order: those inside a look-ahead before the look-ahead itself.
        self._strata: list[Iterable[int]] = []
        self._count = 1
        self._steps = 0
        self._ends = 1  # bits of the ends: of the whole, and of each look-ahead
        self.start = 1 << self._compile(tree, 0)
        self._strata.append(tuple(self._conditions))
        self.size = self._count
        self._dependents: dict[int, list[int]] = {}  # node -> the conditions that name it
        for node, (what, one, other) in self._conditions.items():
            for used in {one, other} if what == "either" else {one}:
                self._dependents.setdefault(used, []).append(node)

    def _new(self) -> int:
        self._count += 1
        self._check_size(self._count <= NODES_MAX)
        return self._count - 1

    @staticmethod
    def _check_size(is_within: bool) -> None:
        if not is_within:
            raise PatternFault(f"is too large: more than {NODES_MAX} elements once its repetitions are written out")

    def _compile(self, tree: Node, follower: int) -> int:
        """The node where `tree`, followed by `follower`, begins."""
        self._steps += 1
        self._check_size(self._steps <= STEPS_MAX)
        if isinstance(tree, CharClass):
            node = self._new()
            self._consuming.append((1 << node, tree, 1 << follower))
            return node
        if isinstance(tree, Concatenation):
            for part in reversed(tree.parts):
                follower = self._compile(part, follower)
            return follower
        if isinstance(tree, Group):
            return self._compile(tree.part, follower)
        assert not isinstance(tree, Reference)
        if isinstance(tree, Alternation):
            start = self._compile(tree.parts[-1], follower)
            for part in tree.parts[-2::-1]:
                start = self._condition("either", self._compile(part, follower), start)
            return start
        if isinstance(tree, Repeat):
            return self._compile_repeat(tree, follower)
        if isinstance(tree, Anchor):
            return self._condition(tree.place, follower, follower)
        end = self._new()
        self._ends |= 1 << end
        outside = set(self._conditions)
        inner = self._compile(tree.part, end)
        self._strata.append([node for node in self._conditions if node not in outside])
        return self._condition("not ahead" if tree.negated else "ahead", follower, inner)

    def _compile_repeat(self, tree: Repeat, follower: int) -> int:
        if tree.high is None:
            loop = self._new()
            self._conditions[loop] = ("either", self._compile(tree.part, loop), follower)
            follower = loop
        else:
            end = follower
            for _ in range(tree.high - tree.low):
                follower = self._condition("either", self._compile(tree.part, follower), end)
        for _ in range(tree.low):
            follower = self._compile(tree.part, follower)
        return follower

    def _condition(self, what: str, one: int, other: int) -> int:
        node = self._new()
        self._conditions[node] = (what, one, other)
        return node

    def matching(self, after: int, character: str | None, before: int, is_last: bool) -> int:
        """The nodes from which the text matches from this character on. O(nodes). Args: as in `_Key`."""
        found = self._ends
        if character is not None:
            for bit, characters, follower in self._consuming:
                if after & follower and characters.has(character):
                    found |= bit
        is_end = character is None or (is_last and character == "\n")
        at_boundary = (before == _WORD) != (character is not None and _kind(character) == _WORD)
        places = {
            "start": before == _NOTHING,
            "end": is_end,
            "very_end": character is None,
            "boundary": at_boundary,
            "no_boundary": not at_boundary,
        }
        for stratum in self._strata:
            members = set(stratum)
            waiting = list(members)
            while waiting:
                node = waiting.pop()
                if found >> node & 1 or node not in members or not self._holds(node, found, places):
                    continue
                found |= 1 << node
                waiting += self._dependents.get(node, ())
        return found

    def _holds(self, node: int, found: int, places: dict[str, bool]) -> bool:
        what, one, other = self._conditions[node]
        if what == "either":
            return bool((found >> one | found >> other) & 1)
        if not found >> one & 1:
            return False
        if what == "ahead":
            return bool(found >> other & 1)
        if what == "not ahead":
            return not found >> other & 1
        return places[what]
