"""Topic patterns: `*` is exactly one word, `#` is any number of words, dots separate words.

There are three indexes, so that most look-ups cost only the words of the key, and the cost of all is bounded: a
dictionary for patterns without wildcards; a tree for patterns with no `#` but at the end, and with few `*` or only
wildcards; automata for the others, whose words may match at many positions of a key. Consecutive wildcards are indexed
as their `*` and at most one `#`, because their order and the number of `#` do not matter.
Source: AMQP 0-9-1 3.1.3.3; behaviour page 3.9.
"""

from typing import Generic, TypeVar

from .counted import Held, values_of, with_one, without_one
from .topic_automata import TopicAutomata
from .topic_tree import TopicTree

T = TypeVar("T")

#: Maximum number of `*` in a pattern of the tree that also has other words: each may add a branch to a look-up.
TREE_STARS_MAX = 3


class TopicPatterns(Generic[T]):
    """A multiset of (pattern, value); a look-up returns each value once.

    `cost`: the cost of all look-ups so far, in units of effort. It never falls.
    """

    def __init__(self) -> None:
        self._exact: dict[str, Held[T]] = {}
        self._tree: TopicTree[T] = TopicTree()
        self._automata: TopicAutomata[T] = TopicAutomata()
        self.cost = 0

    @property
    def excess_states(self) -> int:
        return self._automata.excess_states

    def excess_states_with(self, pattern: str) -> int:
        """The number of states that another pattern would add to `excess_states`."""
        words = normalised(pattern)
        return self._automata.excess_states_with(words) if _needs_automaton(words) else 0

    def add(self, pattern: str, value: T) -> None:
        """Add a pair. O(words)."""
        if not has_wildcards(pattern):
            self._exact[pattern] = with_one(self._exact.get(pattern), value)
            return
        words = normalised(pattern)
        if _needs_automaton(words):
            self._automata.add(words, value)
        else:
            self._tree.add(words, value)

    def remove(self, pattern: str, value: T) -> None:
        """Remove a pair, which must be there."""
        if not has_wildcards(pattern):
            held = without_one(self._exact[pattern], value)
            if held is None:
                del self._exact[pattern]
            else:
                self._exact[pattern] = held
            return
        words = normalised(pattern)
        if _needs_automaton(words):
            self._automata.remove(words, value)
        else:
            self._tree.remove(words, value)

    def match(self, routing_key: str) -> list[T]:
        """The values of matching patterns, each once, in no particular order."""
        words = split(routing_key)
        found: dict[T, None] = dict.fromkeys(values_of(self._exact.get(routing_key)))
        self.cost += self._tree.match(words, found) + self._automata.match(words, found)
        return list(found)


def split(key: str) -> list[str]:
    """The words of a key or pattern. The empty key has none; empty words count."""
    return key.split(".") if key else []


def has_wildcards(pattern: str) -> bool:
    """Whether a word of the pattern is `*` or `#`."""
    return ("*" in pattern or "#" in pattern) and not {"*", "#"}.isdisjoint(pattern.split("."))


def normalised(pattern: str) -> tuple[str, ...]:
    """The words of an equivalent pattern with `#` only before words that are not wildcards, or at the end."""
    words: list[str] = []
    many = False
    for word in split(pattern):
        if word == "#":
            many = True
            continue
        if many and word != "*":
            words.append("#")
            many = False
        words.append(word)
    if many:
        words.append("#")
    return tuple(words)


def _needs_automaton(words: tuple[str, ...]) -> bool:
    """Whether the words of a normalised pattern may match at many positions, so that it needs an automaton."""
    stars = words.count("*")
    return "#" in words[:-1] or (stars > TREE_STARS_MAX and stars + (words[-1] == "#") < len(words))
