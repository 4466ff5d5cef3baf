"""Patterns of operators that are searched in clients' names, in time linear in the name.

The pattern becomes a graph with numbered nodes. A name is read from its end; after each character the set of nodes from
which the rest matches is known (one int, one bit per node). Known sets are cached, so that a usual name costs one dict
access per character; the cache is bounded and cleared when it is full. There is no backtracking, whatever the pattern.
Patterns that `re` matches in linear time are left to it (`quick.py`). Source: ruling 19; R. Cox, "Regular Expression
Matching Can Be Simple And Fast".
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import count
from typing import TypeAlias

from .pattern_syntax import Alt, At, Cat, Chars, Group, Node, PatternFault, Reference, Repeat, parse_pattern
from .quick import literal_start, quick_search

NODES_MAX = 1000
#: Maximum steps of compiling: nested empty groups make no nodes.
STEPS_MAX = 20 * NODES_MAX
MEMORY_MAX = 2000
#: Maximum cached patterns of permissions: those of many users are equal.
ALIKE_MAX = 100

#: (set of nodes after the character, the character or None at the end, what is before it, is it the last).
_Key: TypeAlias = tuple[int, str | None, int, bool]
_NOTHING, _WORD, _OTHER = 0, 1, 2


class Automaton:
    """A compiled tree without references. `search` finds it anywhere in a text, unless it is anchored.

    `size`: number of nodes, which is the cost of a character that is not cached. Raises: PatternFault.
    """

    __slots__ = ("_graph", "_known", "size")

    def __init__(self, tree: Node) -> None:
        self._graph = _Graph(tree)
        self.size = self._graph.size
        self._known: dict[_Key, int] = {}

    def search(self, name: str, new: Callable[[], object] | None = None) -> bool:
        """Whether the pattern is found. O(length of the name), cached or not. `new`: called for each uncached step."""
        known, start = self._known, self._graph.start
        after = 0
        for position in range(len(name), -1, -1):
            character = name[position] if position < len(name) else None
            before = _kind(name[position - 1]) if position else _NOTHING
            key = (after, character, before, position >= len(name) - 1)
            found = known.get(key)
            if found is None:
                if new is not None:
                    new()
                if len(known) >= MEMORY_MAX:
                    known.clear()
                found = known[key] = self._graph.before(*key)
            if found & start:
                return True
            after = found
        return False


class Pattern:
    """A pattern with its text. `start`: a prefix of each name in which it is found.

    Args: literals: name -> text that replaces `{name}` in the pattern, taken literally.
    Raises: PatternFault.
    """

    __slots__ = ("_automaton", "_quick", "start", "text")

    def __init__(self, text: str, literals: dict[str, str] | None = None) -> None:
        self.text = text
        tree = parse_pattern(_filled(text, literals or {}))
        self._automaton = Automaton(tree)
        self._quick = quick_search(tree)
        self.start = literal_start(tree)

    def search(self, name: str) -> bool:
        """Whether it is found anywhere in a name, unless it is anchored. O(length of the name)."""
        quick = self._quick
        if quick is None or "\n" in name:
            return self._automaton.search(name)
        return bool(quick(name))

    def measured(self, name: str) -> tuple[bool, int]:
        """The same, and its cost in units of about 1 us."""
        quick = self._quick
        if quick is not None and "\n" not in name:
            return bool(quick(name)), 1
        new = count()
        found = self._automaton.search(name, lambda: next(new))
        return found, 1 + (len(name) + next(new) * self._automaton.size) // 4

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def permission_pattern(text: str, literals: dict[str, str] | None = None) -> Pattern:
    """A pattern of a permission: empty text matches only the empty name. Raises: PatternFault."""
    return _plain_pattern(text or "^$") if not literals or "{" not in text else Pattern(text, literals)


@lru_cache(ALIKE_MAX)
def _plain_pattern(text: str) -> Pattern:
    return Pattern(text)


def _filled(text: str, literals: dict[str, str]) -> str:
    """Replace `{username}` and similar by quoted text: a client's name must not act as a pattern."""
    for name, value in literals.items():
        quoted = "".join(c if c.isalnum() or ord(c) > 127 or c == "_" else f"\\x{{{ord(c):x}}}" for c in value)
        text = text.replace("{" + name + "}", f"(?-i:{quoted})")
    return text


def _kind(character: str) -> int:
    return _WORD if character.isascii() and (character.isalnum() or character == "_") else _OTHER


class _Graph:
    """Nodes by number. A consuming node has its follower in `next`, the others are conditions on others' bits."""

    def __init__(self, tree: Node) -> None:
        self._chars: list[tuple[int, Chars, int]] = []  # bit, characters, follower's bit
        self._empty: dict[int, tuple[str, int, int]] = {}  # node: (what, node, node): either, a place, ahead
        self._strata: list[Iterable[int]] = []  # look-ahead first, so that "not ahead" is evaluated after it
        self._count = 1
        self._steps = 0
        self._matches = 1  # bits of the ends: of the whole, and of each look-ahead
        self.start = 1 << self._compile(tree, 0)
        self._strata.append(tuple(self._empty))
        self.size = self._count
        self._users: dict[int, list[int]] = {}
        for node, (what, one, other) in self._empty.items():
            for used in {one, other} if what == "either" else {one}:
                self._users.setdefault(used, []).append(node)

    def _new(self) -> int:
        self._count += 1
        self._check_size(self._count <= NODES_MAX)
        return self._count - 1

    @staticmethod
    def _check_size(is_well: bool) -> None:
        if not is_well:
            raise PatternFault(f"is too large: more than {NODES_MAX} elements once its repetitions are written out")

    def _compile(self, tree: Node, follower: int) -> int:
        """The node where `tree`, followed by `follower`, begins."""
        self._steps += 1
        self._check_size(self._steps <= STEPS_MAX)
        if isinstance(tree, Chars):
            node = self._new()
            self._chars.append((1 << node, tree, 1 << follower))
            return node
        if isinstance(tree, Cat):
            for part in reversed(tree.parts):
                follower = self._compile(part, follower)
            return follower
        if isinstance(tree, Group):
            return self._compile(tree.part, follower)
        assert not isinstance(tree, Reference)
        if isinstance(tree, Alt):
            start = self._compile(tree.parts[-1], follower)
            for part in tree.parts[-2::-1]:
                start = self._condition("either", self._compile(part, follower), start)
            return start
        if isinstance(tree, Repeat):
            return self._compile_repeat(tree, follower)
        if isinstance(tree, At):
            return self._condition(tree.place, follower, follower)
        end = self._new()
        self._matches |= 1 << end
        first = set(self._empty)
        inner = self._compile(tree.part, end)
        self._strata.append([node for node in self._empty if node not in first])
        return self._condition("not ahead" if tree.negated else "ahead", follower, inner)

    def _compile_repeat(self, tree: Repeat, follower: int) -> int:
        if tree.high is None:
            loop = self._new()
            self._empty[loop] = ("either", self._compile(tree.part, loop), follower)
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
        self._empty[node] = (what, one, other)
        return node

    def before(self, after: int, character: str | None, left: int, is_last: bool) -> int:
        """The nodes from which the rest matches, one character further to the front. O(nodes)."""
        found = self._matches
        if character is not None:
            for bit, chars, follower in self._chars:
                if after & follower and chars.has(character):
                    found |= bit
        is_end = character is None or (is_last and character == "\n")
        at_boundary = (left == _WORD) != (character is not None and _kind(character) == _WORD)
        places = {
            "start": left == _NOTHING,
            "end": is_end,
            "very_end": character is None,
            "boundary": at_boundary,
            "inside": not at_boundary,
        }
        for stratum in self._strata:
            members = set(stratum)
            waiting = list(members)
            while waiting:
                node = waiting.pop()
                if found >> node & 1 or node not in members or not self._holds(node, found, places):
                    continue
                found |= 1 << node
                waiting += self._users.get(node, ())
        return found

    def _holds(self, node: int, found: int, places: dict[str, bool]) -> bool:
        what, one, other = self._empty[node]
        if what == "either":
            return bool((found >> one | found >> other) & 1)
        if not found >> one & 1:
            return False
        if what == "ahead":
            return bool(found >> other & 1)
        if what == "not ahead":
            return not found >> other & 1
        return places[what]
