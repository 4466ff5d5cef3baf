"""Patterns that `re` matches in linear time, far faster than the automaton. Most patterns are such.

`re` tries alternatives one after the other: so there must be few, and at most one part of variable length, at a known
position. Parts at the ends of a pattern that match any text do not affect whether it is found, and are left out.
Source: ruling 19.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from .pattern_syntax import Anchor, CharClass, Concatenation, Node, Repeat
from .translated import Untranslatable, translated

if TYPE_CHECKING:
    from typing import TypeGuard

#: Maximum paths, and characters of all of them, that `re` tries at each position of a name.
PATHS_MAX, STEPS_MAX = 32, 128
_START = Anchor("start")
_ENDS = (Anchor("end"), Anchor("very_end"))
_ANY = ((), ((10, 10),))  # with these ranges, negated: a dot, with the flag s and without

Search = Callable[[str], object]


def quick_search(tree: Node) -> Search | None:
    """A function that searches a name without line ends; its result is true or false. None: use the automaton."""
    try:
        found = translated(_bare(tree))
    except Untranslatable:
        return None
    factor, degree, length_min = found.paths
    degree_max = 1 if found.anchored else 0  # a search also tries each position
    if factor > PATHS_MAX or degree > degree_max:
        return None
    if degree == degree_max and factor * length_min > STEPS_MAX:
        return None
    return found.pattern.match if found.anchored else found.pattern.search


def literal_start(tree: Node) -> str:
    """A prefix of all names that match the pattern; empty: there is none."""
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
    """The tree without parts at its ends that match anything: the same names without line ends match."""
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
    """Whether it is any number of any characters, or a minimum number of them."""
    if not isinstance(node, Repeat) or node.high is not None:
        return False
    part = node.part
    return isinstance(part, CharClass) and part.negated and part.ranges in _ANY
