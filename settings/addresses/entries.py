"""Entries of settings by match, and the look-up of the entries that cover an address.

Source: address-settings page 1.2, 2.2.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from ..faults import Origin
from ..frozen import frozen
from ..rows.address_settings import Layer, layer_of
from .matching import DEFAULT_WILDCARDS, EXACT, WILDCARD, Match, Wildcards, WordPattern, parse_match

#: The name of an address-setting in reports.
MATCH = "match"


@frozen
class Entry:
    """One address-setting, or destination policy. `vhost` None: for all virtual hosts, below their own entries."""

    match: Match
    settings: Layer  # attribute -> value
    vhost: str | None = None
    origin: Origin = field(default=Origin("", 0))
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}))  # attribute -> its position
    kind: str = MATCH  # or the name of a kind of destination policy

    def origin_of(self, attribute: str) -> Origin:
        """The position where an attribute is set."""
        return self.origins.get(attribute, self.origin)


def entry(text: str, vhost: str | None = None, wildcards: Wildcards = DEFAULT_WILDCARDS, **fields: Any) -> Entry:
    """An entry made in code: `entry("ring.#", default_ring_size=3)`. Raises: MatchFault."""
    return Entry(parse_match(text, wildcards), layer_of(**fields), vhost)


class DuplicateMatch(ValueError):
    """Two entries have the same match text in one virtual host."""


class EntryIndex:
    """The entries of one virtual host, or of all."""

    def __init__(self) -> None:
        self.exact: dict[str, Entry] = {}  # without wildcards, by address
        self.literal: dict[str, Entry] = {}  # in literal-match-markers, by address
        self.root = _Node()
        self.texts: set[str] = set()  # of all matches

    def add(self, one: Entry) -> None:
        if one.match.text in self.texts:
            raise DuplicateMatch(f"match {one.match.text!r} is declared twice")
        self.texts.add(one.match.text)
        if one.match.kind is WILDCARD:
            self.root.add(one)
        elif one.match.kind is EXACT:
            self.exact[one.match.address] = one
        else:
            self.literal[one.match.address] = one

    def matches(self, name: str, words: list[str]) -> list[Entry]:
        """The entries that cover a name, the most specific first. `words`: those of the name."""
        found = [entries[name] for entries in (self.exact, self.literal) if name in entries]
        return found + sorted(self.root.matches(words), key=lambda one: one.match.rank)


class _Node:
    """Wildcard entries as a tree of words: a lookup costs O(words of the address), whatever the number of entries.

    Words that contain wildcards, which only files of Artemis have, are tried one by one.
    """

    __slots__ = ("any_words", "end", "next", "patterns")

    def __init__(self) -> None:
        self.next: dict[str | None, _Node] = {}  # None: any one word
        self.patterns: dict[WordPattern, _Node] = {}
        self.end: Entry | None = None  # the match ends here
        self.any_words: Entry | None = None  # ... or with `#`

    def add(self, one: Entry) -> None:
        node = self
        for word in one.match.words:
            if isinstance(word, WordPattern):
                node = node.patterns.setdefault(word, _Node())
            else:
                node = node.next.setdefault(word, _Node())
        if one.match.has_any_words:
            node.any_words = one
        else:
            node.end = one

    def matches(self, words: list[str]) -> list[Entry]:
        found: list[Entry] = []
        nodes = [self]
        for word in words:
            found += [node.any_words for node in nodes if node.any_words is not None]
            nexts = [node.next.get(word) for node in nodes]
            if word:  # "any one word" does not match an empty word
                nexts += [node.next.get(None) for node in nodes]
                nexts += [one for node in nodes for pattern, one in node.patterns.items() if pattern.matches(word)]
            nodes = [node for node in nexts if node is not None]
            if not nodes:
                return found
        for node in nodes:
            found += [one for one in (node.end, node.any_words) if one is not None]
        return found
