"""Patterns of operators that are searched in clients' names, in time linear in the name.

Patterns that `re` matches in linear time are left to it (`quick.py`), others to the automaton. Source: ruling 19.
"""

from functools import lru_cache
from itertools import count

from .automaton import Automaton
from .pattern_syntax import parse_pattern
from .quick import literal_start, quick_search

#: Maximum cached patterns of permissions: many users have equal ones.
PERMISSIONS_MAX = 100


class Pattern:
    """A pattern with its text. `start`: a prefix of all names that match; empty: there is none.

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
        """Whether it is found anywhere in a name, unless it is anchored. O(length of the name)."""
        quick = self._quick
        if quick is None or "\n" in name:
            return self._automaton.search(name)
        return bool(quick(name))

    def measured(self, name: str) -> tuple[bool, int]:
        """The result of `search`, and its cost in units of about 1 us."""
        quick = self._quick
        if quick is not None and "\n" not in name:
            return bool(quick(name)), 1
        uncached = count()
        found = self._automaton.search(name, lambda: next(uncached))
        return found, 1 + (len(name) + next(uncached) * self._automaton.size) // 4

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
