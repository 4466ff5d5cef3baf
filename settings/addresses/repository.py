"""The repository of address-settings: entries by match, looked up by address, merged, resolved and cached.

It is immutable; a new configuration is a new repository. Lookups are cached per address, in a bounded cache.
Source: address-settings page 1.2, 2.2, 2.4; rulings 9, 12.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..faults import Origin
from .matching import DEFAULT_WILDCARDS, EXACT, WILDCARD, Match, Wildcards, parse_match
from .model import NOTHING_SET, AddressSettings, merge, with_fewer_attempts
from .resolved import ResolvedSettings, default_attempts, resolve

#: Addresses whose settings are cached; beyond it the oldest is dropped.
CACHE_MAX = 4096

#: Server-named queues are looked up under the uuid-namespace, if there is one.
SERVER_NAMED = "amq.gen-"


@dataclass(slots=True, frozen=True)
class Entry:
    """One address-setting. `vhost` None: for every virtual host, with lower precedence than the virtual host's own."""

    match: Match
    settings: AddressSettings
    vhost: str | None = None
    origin: Origin = field(default=Origin("", 0))
    origins: Mapping[str, Origin] = field(default_factory=lambda: MappingProxyType({}))  # attribute -> where

    def origin_of(self, attribute: str) -> Origin:
        """Where a field is set."""
        return self.origins.get(attribute, self.origin)


def entry(text: str, vhost: str | None = None, wildcards: Wildcards = DEFAULT_WILDCARDS, **fields: Any) -> Entry:
    """An entry made in code: `entry("ring.#", default_ring_size=3)`. Raises: MatchFault."""
    return Entry(parse_match(text, wildcards), AddressSettings(**fields), vhost)


class DuplicateMatch(ValueError):
    """Two entries have the same match text in one virtual host."""


class SettingsRepository:
    """All entries of a configuration. Raises: DuplicateMatch."""

    __slots__ = (
        "_cache",
        "_layers",
        "_resolved",
        "_under_policies",
        "attempts",
        "entries",
        "id_cache_size",
        "uuid_namespace",
        "wildcards",
    )

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        wildcards: Wildcards = DEFAULT_WILDCARDS,
        *,
        default_max_delivery_attempts: int | None = None,
        uuid_namespace: str = "",
        id_cache_size: int | None = None,
    ) -> None:
        self.entries = tuple(entries)
        self.wildcards = wildcards
        self.attempts = default_max_delivery_attempts
        self.uuid_namespace = uuid_namespace
        self.id_cache_size = id_cache_size
        self._layers: dict[str | None, _Layer] = {}
        for one in self.entries:
            self._layers.setdefault(one.vhost, _Layer()).add(one)
        self._cache: dict[tuple[str | None, str], ResolvedSettings] = {}
        self._resolved: dict[tuple[int, ...], ResolvedSettings] = {}
        self._under_policies: dict[tuple[object, ...], ResolvedSettings] = {}

    @property
    def vhosts(self) -> list[str]:
        """Virtual hosts that have entries of their own."""
        return sorted(vhost for vhost in self._layers if vhost is not None)

    def lookup_name(self, address: str) -> str:
        """The name by which an address is looked up: for server-named queues, within the uuid-namespace."""
        if self.uuid_namespace and address.startswith(SERVER_NAMED):
            return f"{self.uuid_namespace}{self.wildcards.delimiter}{address}"
        return address

    def matches(self, address: str, vhost: str | None = "/") -> tuple[Entry, ...]:
        """The entries that apply, most specific first; the virtual host's own before those for every one."""
        name = self.lookup_name(address)
        own = self._layers.get(vhost) if vhost is not None else None
        everywhere = self._layers.get(None)
        found: list[Entry] = []
        if own is not None or everywhere is not None:
            words = name.split(self.wildcards.delimiter)
            for layer in (own, everywhere):
                if layer is not None:
                    found += layer.matches(name, words)
        return tuple(found)

    def merged(self, address: str, vhost: str | None = "/") -> AddressSettings:
        """The matching entries merged; None where none sets a field."""
        return merge(one.settings for one in self.matches(address, vhost))

    def resolve(self, address: str, vhost: str | None = "/") -> ResolvedSettings:
        """The settings of an address. Cached; equal sets of entries give the same object."""
        key = (vhost, address) if self._layers else _ANY  # without entries all addresses are alike
        resolved = self._cache.get(key)
        if resolved is None:
            found = self.matches(address, vhost)
            group = tuple(id(one) for one in found)
            resolved = self._resolved.get(group)
            if resolved is None:
                resolved = self._finish(merge(one.settings for one in found), NOTHING_SET)
                _remember(self._resolved, group, resolved)
            _remember(self._cache, key, resolved)
        return resolved

    def sets_id_cache_size(self, address: str, vhost: str | None = "/") -> bool:
        """Whether an id-cache-size is configured for an address: in its settings, or for the broker."""
        return self.id_cache_size is not None or self.merged(address, vhost).id_cache_size is not None

    def resolve_queue(
        self, address: str, vhost: str | None, own: AddressSettings, policy: AddressSettings = NOTHING_SET
    ) -> ResolvedSettings:
        """The settings of a queue: its own (`settings_of_arguments`) over its policy's over those of its address."""
        if policy is NOTHING_SET:
            if own is NOTHING_SET or own == NOTHING_SET:
                return self.resolve(address, vhost)
            return self._finish(self.merged(address, vhost), own)
        found = self.matches(address, vhost)
        key = (tuple(id(one) for one in found), own, policy)
        resolved = self._under_policies.get(key)
        if resolved is None:
            own = with_fewer_attempts(own, policy)
            resolved = self._finish(merge(one.settings for one in found), own)
            _remember(self._under_policies, key, resolved)
        return resolved

    def _finish(self, merged: AddressSettings, own: AddressSettings) -> ResolvedSettings:
        attempts = default_attempts(merged, self.attempts)
        return resolve(own.over(merged), attempts=attempts, id_cache_size=self.id_cache_size)

    def sources(self, address: str, vhost: str | None = "/") -> dict[str, Entry]:
        """Attribute -> the entry that gives its value; attributes that no entry sets are absent."""
        given: dict[str, Entry] = {}
        for one in self.matches(address, vhost):
            for attribute in one.settings.explicit():
                given.setdefault(attribute, one)
        return given


class _Layer:
    """The entries of one virtual host, or of all."""

    __slots__ = ("exact", "literal", "root", "texts")

    def __init__(self) -> None:
        self.exact: dict[str, Entry] = {}
        self.literal: dict[str, Entry] = {}
        self.root = _Node()
        self.texts: set[str] = set()

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
        found = [layer[name] for layer in (self.exact, self.literal) if name in layer]
        return found + sorted(self.root.matches(words), key=lambda one: one.match.rank)


class _Node:
    """Wildcard entries as a tree of words: a lookup costs O(words of the address), whatever the number of entries."""

    __slots__ = ("any_words", "end", "next")

    def __init__(self) -> None:
        self.next: dict[str | None, _Node] = {}  # None: any one word
        self.end: Entry | None = None  # the match ends here
        self.any_words: Entry | None = None  # ... or with `#`

    def add(self, one: Entry) -> None:
        node = self
        for word in one.match.words:
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
            if word:  # an empty word is not "any one word"
                nexts += [node.next.get(None) for node in nodes]
            nodes = [node for node in nexts if node is not None]
            if not nodes:
                return found
        for node in nodes:
            found += [one for one in (node.end, node.any_words) if one is not None]
        return found


def _remember(cache: dict[Any, ResolvedSettings], key: object, resolved: ResolvedSettings) -> None:
    if len(cache) >= CACHE_MAX:
        del cache[next(iter(cache))]
    cache[key] = resolved


_ANY = (None, "")

#: Without any configuration: built-in defaults for every address.
NO_SETTINGS = SettingsRepository()
