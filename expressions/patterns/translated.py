"""A pattern for the `re` module, with an estimate of its steps: `re` tries one alternative after the other.

With few steps `re` is by far the fastest engine; `patterns.py` and `searching.py` compare the estimate with limits.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from .pattern_syntax import Alternation, Anchor, CharClass, Concatenation, Group, LookAhead, Node, Repeat

#: Maximum alternatives that `re` would try one by one.
PATHS_MAX = 10_000
#: Maximum cached characters and classes: expanding one that ignores case takes 80 us.
CLASSES_MAX = 1000
#: Non-ASCII characters that match an ASCII one if case is ignored.
_ODD_CASES = "\u0130\u0131\u017f\u212a"
_PLACES = {"start": r"\A", "end": "$", "very_end": r"\Z", "boundary": r"(?a:\b)"}


class Untranslatable(ValueError):
    """`re` has no equivalent, or may take very long."""


class Paths(NamedTuple):
    """The number of paths through a part that `re` may try in a text: `factor` * (its length + 1) ** `degree`."""

    factor: int
    degree: int
    length_min: int  # minimum characters that the part matches

    def steps(self, length: int) -> int:
        """An estimate of the steps of all paths, for one position where the pattern may begin."""
        return int(self.factor * (length + 1) ** self.degree)


class Translated(NamedTuple):
    """`anchored`: it matches only at the beginning of a text. `size`: characters of the pattern for `re`."""

    pattern: "re.Pattern[str]"
    paths: Paths
    anchored: bool
    size: int

    def steps(self, length: int) -> int:
        """An estimate of the steps in a text of this length."""
        return self.paths.steps(length) * (1 if self.anchored else length + 1) + self.size


def translated(tree: Node) -> Translated:
    """The pattern of a tree for `re`. Raises: Untranslatable."""
    paths = _paths(tree)
    text = _text(tree)
    first = tree.parts[0] if isinstance(tree, Concatenation) and tree.parts else tree
    try:
        return Translated(re.compile(text), paths, first == Anchor("start"), len(text))
    except (re.error, RecursionError, OverflowError) as error:
        raise Untranslatable from error


def _paths(node: Node) -> Paths:
    if isinstance(node, CharClass):
        return Paths(1, 0, 1)
    if isinstance(node, Anchor):
        return Paths(1, 0, 0)
    if isinstance(node, Group):
        return _paths(node.part)
    if isinstance(node, LookAhead):
        return _paths(node.part)._replace(length_min=0)
    if isinstance(node, Concatenation | Alternation):
        each = [_paths(part) for part in node.parts]
        if isinstance(node, Alternation):
            factor = sum(one.factor for one in each)
            paths = Paths(factor, max(one.degree for one in each), min(one.length_min for one in each))
        else:
            factor = 1
            for one in each:
                factor = min(factor * one.factor, PATHS_MAX + 1)
            paths = Paths(factor, sum(one.degree for one in each), sum(one.length_min for one in each))
    elif isinstance(node, Repeat):
        paths = _paths_of_repeat(node)
    else:
        raise Untranslatable
    if paths.factor > PATHS_MAX:
        raise Untranslatable
    return paths


def _paths_of_repeat(node: Repeat) -> Paths:
    part = _paths(node.part)
    if part.degree or not part.length_min:
        raise Untranslatable
    length_min = node.low * part.length_min
    if node.high is None:
        if part.factor > 1:
            raise Untranslatable
        return Paths(1, 1, length_min)
    factor = 0
    for times in range(node.low, node.high + 1):
        factor += part.factor**times if times < 15 or part.factor == 1 else PATHS_MAX + 1  # 2 ** 15 exceeds it
        if factor > PATHS_MAX:
            raise Untranslatable
    return Paths(factor, 0, length_min)


def _text(node: Node) -> str:
    if isinstance(node, CharClass):
        return _class(node)
    if isinstance(node, Anchor):
        if node.place not in _PLACES:
            raise Untranslatable
        return _PLACES[node.place]
    if isinstance(node, Group):
        return f"({_text(node.part)})"
    if isinstance(node, LookAhead):
        return f"(?{'!' if node.negated else '='}{_text(node.part)})"
    if isinstance(node, Concatenation):
        return "".join(_text(part) for part in node.parts)
    if isinstance(node, Alternation):
        return f"(?:{'|'.join(_text(part) for part in node.parts)})"
    if isinstance(node, Repeat):
        high = "" if node.high is None else node.high
        return f"(?:{_text(node.part)}){{{node.low},{high}}}{'?' * node.lazy}"
    raise Untranslatable


@lru_cache(CLASSES_MAX)
def _class(chars: CharClass) -> str:
    ranges = chars.ranges
    if chars.folded:
        if any(high > 127 for _, high in ranges):
            raise Untranslatable
        plain = CharClass(ranges, False, True)
        ranges = tuple((ord(one), ord(one)) for one in [*map(chr, range(128)), *_ODD_CASES] if plain.has(one))
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and not chars.negated:
        return re.escape(chr(ranges[0][0]))
    if not ranges:
        return r"[\s\S]" if chars.negated else r"[^\s\S]"
    inside = "".join(f"\\U{low:08x}" + ("" if high == low else f"-\\U{high:08x}") for low, high in ranges)
    return f"[{'^' if chars.negated else ''}{inside}]"
