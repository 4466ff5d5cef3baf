"""A pattern for the `re` module, with a bound of its time: `re` tries one alternative after the other.

With a low bound it is by far the fastest; else `searching` takes an engine whose time is linear.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from .pattern_syntax import Ahead, Alt, At, Cat, Chars, Group, Node, Repeat

#: Maximum alternatives that `re` would try one by one.
PATHS_MAX = 10_000
#: Maximum cached characters and classes: expanding one that ignores case takes 80 us.
CLASSES_MAX = 1000
#: Characters beyond ASCII that are the other case of an ASCII one, and so match it if case is ignored.
_ODD_CASES = "\u0130\u0131\u017f\u212a"
_PLACES = {"start": r"\A", "end": "$", "very_end": r"\Z", "boundary": r"(?a:\b)"}


class Untranslatable(ValueError):
    """`re` has no equivalent, or may take very long."""


class Ways(NamedTuple):
    """The number of alternatives in a part (`ways`), times the length of the text to the power of `degree`."""

    ways: int
    degree: int
    length_min: int  # minimum characters

    def steps(self, length: int) -> int:
        """An estimate of the steps of all alternatives, for one position where the pattern may begin."""
        return int(self.ways * (length + 1) ** self.degree)


class Translated(NamedTuple):
    """`anchored`: it is found at the beginning or nowhere. `size`: of its text, as a measure of the steps of one
    alternative.
    """

    pattern: "re.Pattern[str]"
    ways: Ways
    anchored: bool
    size: int

    def steps(self, length: int) -> int:
        """An upper bound of the steps in a text of this length."""
        return self.ways.steps(length) * (1 if self.anchored else length + 1) + self.size


def translated(tree: Node) -> Translated:
    """Raises: Untranslatable."""
    ways = _ways(tree)
    text = _text(tree)
    first = tree.parts[0] if isinstance(tree, Cat) and tree.parts else tree
    try:
        return Translated(re.compile(text), ways, first == At("start"), len(text))
    except (re.error, RecursionError, OverflowError) as error:
        raise Untranslatable from error


def _ways(node: Node) -> Ways:
    if isinstance(node, Chars):
        return Ways(1, 0, 1)
    if isinstance(node, At):
        return Ways(1, 0, 0)
    if isinstance(node, Group):
        return _ways(node.part)
    if isinstance(node, Ahead):
        return _ways(node.part)._replace(length_min=0)
    if isinstance(node, Cat | Alt):
        each = [_ways(part) for part in node.parts]
        count = 1
        if isinstance(node, Alt):
            count = sum(one.ways for one in each)
            ways = Ways(count, max(one.degree for one in each), min(one.length_min for one in each))
        else:
            for one in each:
                count = min(count * one.ways, PATHS_MAX + 1)
            ways = Ways(count, sum(one.degree for one in each), sum(one.length_min for one in each))
    elif isinstance(node, Repeat):
        ways = _repeated(node)
    else:
        raise Untranslatable
    if ways.ways > PATHS_MAX:
        raise Untranslatable
    return ways


def _repeated(node: Repeat) -> Ways:
    part = _ways(node.part)
    if part.degree or not part.length_min:
        raise Untranslatable
    length_min = node.low * part.length_min
    if node.high is None:
        if part.ways > 1:
            raise Untranslatable
        return Ways(1, 1, length_min)
    count = 0
    power = part.ways if part.ways == 1 else min(part.ways, PATHS_MAX)
    for times in range(node.low, node.high + 1):
        count += power**times if times < 15 or power == 1 else PATHS_MAX + 1
        if count > PATHS_MAX:
            raise Untranslatable
    return Ways(count, 0, length_min)


def _text(node: Node) -> str:
    if isinstance(node, Chars):
        return _class(node)
    if isinstance(node, At):
        if node.place not in _PLACES:
            raise Untranslatable
        return _PLACES[node.place]
    if isinstance(node, Group):
        return f"({_text(node.part)})"
    if isinstance(node, Ahead):
        return f"(?{'!' if node.negated else '='}{_text(node.part)})"
    if isinstance(node, Cat):
        return "".join(_text(part) for part in node.parts)
    if isinstance(node, Alt):
        return f"(?:{'|'.join(_text(part) for part in node.parts)})"
    if isinstance(node, Repeat):
        high = "" if node.high is None else node.high
        return f"(?:{_text(node.part)}){{{node.low},{high}}}{'?' * node.lazy}"
    raise Untranslatable


@lru_cache(CLASSES_MAX)
def _class(chars: Chars) -> str:
    ranges = chars.ranges
    if chars.folded:
        if any(high > 127 for _, high in ranges):
            raise Untranslatable
        plain = Chars(ranges, False, True)
        ranges = tuple((ord(one), ord(one)) for one in [*map(chr, range(128)), *_ODD_CASES] if plain.has(one))
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and not chars.negated:
        return re.escape(chr(ranges[0][0]))
    if not ranges:
        return r"[\s\S]" if chars.negated else r"[^\s\S]"
    inside = "".join(f"\\U{low:08x}" + ("" if high == low else f"-\\U{high:08x}") for low, high in ranges)
    return f"[{'^' if chars.negated else ''}{inside}]"
