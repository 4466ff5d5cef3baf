"""Topic patterns with a `#` before other words or many `*`, as automata whose states are bits of one integer.

State n of a pattern means that its first n words have matched; `#` lets a state stay active. For each word of the key,
one shift and two masks advance all states of a bundle of patterns. So a look-up costs at most the words of the key
times the bundles, for all patterns and keys (shift-and, Baeza-Yates and Gonnet, 1992).

Each pattern is filed under one of its words, the one with the fewest other patterns. It adds no cost to look-ups of
keys without that word.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

from .counted import Held, values_of, with_one, without_one

T = TypeVar("T")

Words = tuple[str, ...]

#: States of one bundle. An operation on integers of this size (256 octets) takes no longer than a bytecode.
BUNDLE_STATES = 2048
#: Words of a key that are matched with a bundle, and states of a bundle that are built, per unit of effort.
WORDS_PER_EFFORT, STATES_PER_EFFORT = 4, 12


class _Bundle(Generic[T]):
    """Patterns that share an automaton, which is built by the first look-up after a change."""

    __slots__ = ("_automaton", "patterns", "states")

    def __init__(self) -> None:
        self.patterns: dict[Words, Held[T]] = {}
        self.states = 0
        self._automaton: _Automaton[T] | None = None

    def put(self, words: Words, held: Held[T]) -> None:
        """Add a new pattern."""
        self.patterns[words] = held
        self.states += states_of(words)
        self._automaton = None

    def take(self, words: Words) -> None:
        del self.patterns[words]
        self.states -= states_of(words)
        self._automaton = None

    def replace(self, words: Words, held: Held[T]) -> None:
        self.patterns[words] = held
        self._automaton = None

    def match(self, words: list[str], found: dict[T, None]) -> int:
        """Add the values of matching patterns to `found`. Returns the cost in units of effort."""
        cost = 1 + len(words) // WORDS_PER_EFFORT
        if self._automaton is None:
            self._automaton = _Automaton(self.patterns.items())
            cost += self.states // STATES_PER_EFFORT
        return cost + self._automaton.match(words, found)


class _Automaton(Generic[T]):
    """The automaton of some patterns. Its masks have a bit for each state."""

    __slots__ = ("_any", "_ends", "_exact", "_held", "_starts", "_stays")

    def __init__(self, patterns: Iterable[tuple[Words, Held[T]]]) -> None:
        self._starts = self._stays = self._any = self._ends = 0
        self._exact: dict[str, int] = {}  # word -> the states that it can enter, with those of `*`
        self._held: dict[int, Held[T]] = {}  # by the number of the last state
        state = 0
        for words, held in patterns:
            self._starts |= 1 << state
            for word in words:
                if word == "#":
                    self._stays |= 1 << state
                    continue
                state += 1
                if word == "*":
                    self._any |= 1 << state
                else:
                    self._exact[word] = self._exact.get(word, 0) | 1 << state
            self._ends |= 1 << state
            self._held[state] = held
            state += 1
        for word in self._exact:
            self._exact[word] |= self._any

    def match(self, words: list[str], found: dict[T, None]) -> int:
        """Add the values of matching patterns to `found`. Returns the number of matching patterns."""
        active, stays, any_, exact = self._starts, self._stays, self._any, self._exact.get
        for word in words:
            active = active << 1 & exact(word, any_) | active & stays
            if not active:
                return 0
        active &= self._ends
        matching = 0
        while active:
            matching += 1
            state = active.bit_length() - 1
            found.update(dict.fromkeys(values_of(self._held[state])))
            active ^= 1 << state
        return matching


class _Group(Generic[T]):
    """The patterns that are filed under one word."""

    __slots__ = ("bundles", "roomy", "states")

    def __init__(self) -> None:
        self.bundles: dict[_Bundle[T], None] = {}
        self.roomy: _Bundle[T] | None = None  # the only one that is at most half full
        self.states = 0

    @property
    def excess_states(self) -> int:
        """The number of states beyond those of one bundle."""
        return max(0, self.states - BUNDLE_STATES)

    def put(self, words: Words, held: Held[T]) -> _Bundle[T]:
        """Add a pattern to a bundle with room. O(words)."""
        bundle = self.roomy
        if bundle is None:
            bundle = self.roomy = _Bundle()
            self.bundles[bundle] = None
        bundle.put(words, held)
        self.states += states_of(words)
        if bundle.states > BUNDLE_STATES // 2:
            self.roomy = None
        return bundle

    def take(self, words: Words, bundle: _Bundle[T]) -> tuple[list[Words], _Bundle[T]]:
        """Remove a pattern from its bundle, and merge two bundles that are at most half full.

        Returns the patterns that moved to another bundle, and that bundle.
        """
        bundle.take(words)
        self.states -= states_of(words)
        if not bundle.patterns:
            del self.bundles[bundle]
            if self.roomy is bundle:
                self.roomy = None
            return [], bundle
        into = self.roomy
        if into is None and bundle.states <= BUNDLE_STATES // 2:
            self.roomy = bundle
        if into is None or into is bundle or bundle.states > BUNDLE_STATES // 2:
            return [], bundle
        moved = list(bundle.patterns)
        for pattern in moved:
            into.put(pattern, bundle.patterns[pattern])
        del self.bundles[bundle]
        if into.states > BUNDLE_STATES // 2:
            self.roomy = None
        return moved, into


class TopicAutomata(Generic[T]):
    """A multiset of (normalised words of a pattern, value)."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group[T]] = {}
        self._places: dict[Words, tuple[str, _Bundle[T]]] = {}
        #: The sum, over all words, of the states beyond one bundle. The look-up of a key that has all these words may
        #: visit all of them.
        self.excess_states = 0

    def excess_states_with(self, words: Words) -> int:
        """The number of states that another pattern would add to `excess_states`."""
        if words in self._places:
            return 0
        states = min(self._states_under(word) for word in _exact(words))
        return min(states_of(words), max(0, states + states_of(words) - BUNDLE_STATES))

    def add(self, words: Words, value: T) -> None:
        """Add a pair of pattern and value. O(words)."""
        place = self._places.get(words)
        if place is not None:
            bundle = place[1]
            bundle.replace(words, with_one(bundle.patterns[words], value))
            return
        word = min(_exact(words), key=self._states_under)
        group = self._groups.get(word)
        if group is None:
            group = self._groups[word] = _Group()
        self.excess_states -= group.excess_states
        self._places[words] = word, group.put(words, value)
        self.excess_states += group.excess_states

    def remove(self, words: Words, value: T) -> None:
        """Remove a pair, which must be there. O(patterns of a bundle) at worst."""
        word, bundle = self._places[words]
        held = without_one(bundle.patterns[words], value)
        if held is not None:
            bundle.replace(words, held)
            return
        del self._places[words]
        group = self._groups[word]
        self.excess_states -= group.excess_states
        moved, bundle = group.take(words, bundle)
        for pattern in moved:
            self._places[pattern] = word, bundle
        self.excess_states += group.excess_states
        if not group.bundles:
            del self._groups[word]

    def match(self, words: list[str], found: dict[T, None]) -> int:
        """Add the values of matching patterns to `found`. Returns the cost in units of effort.

        O(words of the key x bundles under them).
        """
        cost = 0
        if self._groups:
            for word in set(words):
                group = self._groups.get(word)
                if group is not None:
                    for bundle in group.bundles:
                        cost += bundle.match(words, found)
        return cost

    def _states_under(self, word: str) -> int:
        group = self._groups.get(word)
        return 0 if group is None else group.states


def states_of(words: Words) -> int:
    """The number of states of a pattern: its words without `#`, and the start."""
    return 1 + len(words) - words.count("#")


def _exact(words: Words) -> Iterable[str]:
    """The words of a pattern that are not wildcards; at least one."""
    return (word for word in words if word != "*" and word != "#")
