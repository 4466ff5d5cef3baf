"""SQL's LIKE: `%` is any text, `_` is one character, and the whole text must match. Linear in the text length."""

import re

from .searching import Charge


class Like:
    """A pattern of LIKE, split at each `%`: the first segment is at the beginning, the last one at the end.

    The others are searched one after the other: the first match of each leaves most for the next.
    """

    def __init__(self, pattern: str, escape: str | None) -> None:
        segments: list[list[str]] = [[]]
        position = 0
        while position < len(pattern):
            character = pattern[position]
            position += 1
            if character == escape and position < len(pattern):
                segments[-1].append(re.escape(pattern[position]))
                position += 1
            elif character == "%":
                segments.append([])
            else:
                segments[-1].append("." if character == "_" else re.escape(character))
        self._segments = [(re.compile("".join(one), re.DOTALL), len(one)) for one in segments]
        self._size = sum(len(one) for one in segments) + 1

    def matches(self, text: str, charge: Charge) -> bool:
        """Whether the whole text matches."""
        charge(len(text) * self._size)
        first, size = self._segments[0]
        if len(self._segments) == 1:
            return len(text) == size and first.match(text) is not None
        last, size_last = self._segments[-1]
        end = len(text) - size_last
        at = size
        if at > end or first.match(text) is None or last.match(text, end) is None:
            return False
        for segment, _ in self._segments[1:-1]:
            found = segment.search(text, at, end)
            if found is None:
                return False
            at = found.end()
        return True
