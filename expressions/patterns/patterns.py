"""Patterns of policies, permissions, topics and the console's lists, searched in names in linear time.

Clients choose the names. `re` searches the patterns for which it takes linear time (`quick_search`), but only in names
without line ends; the automaton does the rest. Source: ruling 19.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING

from .automaton import Automaton
from .pattern_syntax import Anchor, CharClass, Concatenation, Node, Repeat, parse_pattern
from .translated import Untranslatable, translated

if TYPE_CHECKING:
    from typing import TypeGuard

#: Maximum cached patterns of permissions: many users have equal ones.
PERMISSIONS_MAX = 100


class Pattern:
    """A pattern with its text. `start`: a prefix of all names that match; empty: none is known.

    Args: literals: name -> text that replaces `{name}` in the pattern, taken literally.
    Raises: PatternFault.
    """

    def __init__(self, text: str, literals: dict[str, str] | None = None) -> None:
        self.text = text
        tree = parse_pattern(_filled(text, literals or {}))
        self._automaton = Automaton(tree)
        self._quick = quick_search(tree)
        self.start = literal_start(tree)

    def search(self, name: str) -> bool:
        """Whether the pattern is found in a name: anywhere, or where its anchors require. O(length of the name)."""
        quick = self._quick
        if quick is None or "\n" in name:
            return self._automaton.search(name)
        return bool(quick(name))

    def measured(self, name: str) -> tuple[bool, int]:
        """The result of `search`, and its cost in units of about 1 us."""
        quick = self._quick
        if quick is not None and "\n" not in name:
            return bool(quick(name)), 1
        costly = count()  # characters whose step was not in the automaton's cache
        found = self._automaton.search(name, lambda: next(costly))
        return found, 1 + (len(name) + next(costly) * self._automaton.size) // 4

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def permission_pattern(text: str, literals: dict[str, str] | None = None) -> Pattern:
    """A pattern of a permission: empty text matches only the empty name. Raises: PatternFault."""
    return _plain_pattern(text or "^$") if not literals or "{" not in text else Pattern(text, literals)


@lru_cache(PERMISSIONS_MAX)
def _plain_pattern(text: str) -> Pattern:
    return Pattern(text)


def _filled(text: str, literals: dict[str, str]) -> str:
    """Replace `{username}` and similar by quoted text: a client's name must not act as a pattern."""
    for name, value in literals.items():
        quoted = "".join(c if c.isalnum() or ord(c) > 127 or c == "_" else f"\\x{{{ord(c):x}}}" for c in value)
        text = text.replace("{" + name + "}", f"(?-i:{quoted})")
    return text


#: Maximum paths, and characters of all of them, that `re` tries at each position of a name.
NAME_PATHS_MAX, NAME_STEPS_MAX = 32, 128
_START = Anchor("start")
_ENDS = (Anchor("end"), Anchor("very_end"))
_ANY = ((), ((10, 10),))  # the ranges of a negated class that equals a dot: none with the flag s, else the line feed

Search = Callable[[str], object]


def quick_search(tree: Node) -> Search | None:
    """A function that searches a name without line ends; its result counts as a bool. None: use the automaton."""
    try:
        found = translated(_bare(tree))
    except Untranslatable:
        return None
    factor, degree, length_min = found.paths
    degree_max = 1 if found.anchored else 0  # a search also tries each position
    if factor > NAME_PATHS_MAX or degree > degree_max:
        return None
    if degree == degree_max and factor * length_min > NAME_STEPS_MAX:
        return None
    return found.pattern.match if found.anchored else found.pattern.search


def literal_start(tree: Node) -> str:
    """A prefix of all names that match the pattern; empty: none is known."""
    parts = _parts(tree)
    if not parts or parts[0] != _START:
        return ""
    text = ""
    for part in parts[1:]:
        if not isinstance(part, CharClass) or part.folded or part.negated or len(part.ranges) != 1:
            break
        (low, high), *_ = part.ranges
        if low != high:
            break
        text += chr(low)
    return text


def _parts(tree: Node) -> tuple[Node, ...]:
    return tree.parts if isinstance(tree, Concatenation) else (tree,)


def _bare(tree: Node) -> Node:
    """The tree without parts at its ends that match anything. It matches the same names, unless they have line ends."""
    parts = list(_parts(tree))
    if len(parts) > 1 and parts[0] == _START and _is_open(parts[1]) and not parts[1].low:
        del parts[0]
    if len(parts) > 1 and parts[-1] in _ENDS and _is_open(parts[-2]):
        del parts[-1]
    for at in (0, -1):
        while parts and _is_open(end := parts[at]):
            if end.low:
                parts[at] = Repeat(end.part, end.low, end.low)
            else:
                del parts[at]
    return Concatenation(tuple(parts))


def _is_open(node: Node) -> "TypeGuard[Repeat]":
    """Whether it repeats a dot or any character without a maximum, such as `.*` and `.+`."""
    if not isinstance(node, Repeat) or node.high is not None:
        return False
    part = node.part
    return isinstance(part, CharClass) and part.negated and part.ranges in _ANY
