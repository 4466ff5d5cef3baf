"""The repository of address-settings: entries by match, looked up by address, merged, resolved and cached.

`resolve_queue` and `resolve_topic` put the destination policy that applies above the entries. A repository is
immutable; a new configuration is a new one. Source: address-settings page 1.2, 2.2, 2.4; rulings 9, 12.
"""

from collections.abc import Iterable
from typing import Any

from ..rows.address_settings import (
    NOTHING_SET,
    Layer,
    ResolvedSettings,
    default_attempts,
    merge,
    resolve,
    with_fewer_attempts,
)
from ..rows.flow_control import SystemUsage
from .destinations import NO_DESTINATIONS, QUEUE_ENTRY, TOPIC_ENTRY, DestinationPolicies
from .entries import Entry, EntryIndex
from .matching import DEFAULT_WILDCARDS, Wildcards
from .topics import has_subscriber_settings, subscriber_settings

#: Maximum size of each cache; beyond it the oldest item is dropped.
CACHE_MAX = 4096

#: The key of every address in the cache, if there are no entries.
_ANY = (None, "")

#: Prefix of the names of server-named queues, which are looked up under the uuid-namespace, if there is one.
SERVER_NAMED = "amq.gen-"


class SettingsRepository:
    """All entries of a configuration. Raises: DuplicateMatch."""

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        wildcards: Wildcards = DEFAULT_WILDCARDS,
        *,
        default_max_delivery_attempts: int | None = None,
        uuid_namespace: str = "",
        id_cache_size: int | None = None,
        usage: SystemUsage | None = None,
        destinations: DestinationPolicies = NO_DESTINATIONS,
    ) -> None:
        self.entries = tuple(entries)
        self.wildcards = wildcards
        self.attempts = default_max_delivery_attempts
        self.uuid_namespace = uuid_namespace
        self.id_cache_size = id_cache_size
        self.usage = usage
        self.destinations = destinations
        self._indexes: dict[str | None, EntryIndex] = {}
        for one in self.entries:
            self._indexes.setdefault(one.vhost, EntryIndex()).add(one)
        self._by_address: dict[tuple[str | None, str], ResolvedSettings] = {}
        self._by_entries: dict[tuple[int, ...], ResolvedSettings] = {}
        self._by_layers: dict[tuple[object, ...], ResolvedSettings] = {}
        self._by_destination: dict[tuple[str, str | None, str, str], ResolvedSettings] = {}
        self._topic_layers: dict[tuple[str | None, str], Layer] = {}
        default = () if destinations.default is None else (destinations.default,)
        #: Whether any topic has settings for its subscribers; if not, `topic_layer` is not needed.
        self.concerns_topics = any(
            has_subscriber_settings(one.settings) for one in (*self.entries, *destinations.topics, *default)
        )
        #: Whether any address has `auto-delete-created-queues = true`; if not, clients' queues are not checked.
        self.deletes_declared_queues = any(one.settings.get("auto_delete_created_queues") for one in self.entries)
        #: Whether any address has `enable-metrics = false`; if not, queues are not checked one by one.
        self.hides_metrics = any(one.settings.get("enable_metrics") is False for one in self.entries)

    def with_entries(self, entries: Iterable[Entry], usage: SystemUsage | None = None) -> "SettingsRepository":
        """A repository with further entries, each replacing the one of the same match and virtual host.

        `usage`: replaces [system-usage]; None: it stays. Raises: DuplicateMatch.
        """
        added = tuple(entries)
        replaced = {(one.vhost, one.match.text) for one in added}
        return SettingsRepository(
            (*(one for one in self.entries if (one.vhost, one.match.text) not in replaced), *added),
            self.wildcards,
            default_max_delivery_attempts=self.attempts,
            uuid_namespace=self.uuid_namespace,
            id_cache_size=self.id_cache_size,
            usage=usage or self.usage,
            destinations=self.destinations,
        )

    @property
    def vhosts(self) -> list[str]:
        """Virtual hosts with their own entries."""
        return sorted(vhost for vhost in self._indexes if vhost is not None)

    def lookup_name(self, address: str) -> str:
        """The name under which an address is looked up: for server-named queues, within the uuid-namespace."""
        if self.uuid_namespace and address.startswith(SERVER_NAMED):
            return f"{self.uuid_namespace}{self.wildcards.delimiter}{address}"
        return address

    def matches(self, address: str, vhost: str | None = "/") -> tuple[Entry, ...]:
        """The entries that apply, most specific first; those of the virtual host before those for all."""
        name = self.lookup_name(address)
        own = self._indexes.get(vhost) if vhost is not None else None
        everywhere = self._indexes.get(None)
        found: list[Entry] = []
        if own is not None or everywhere is not None:
            words = name.split(self.wildcards.delimiter)
            for index in (own, everywhere):
                if index is not None:
                    found += index.matches(name, words)
        return tuple(found)

    def merged(self, address: str, vhost: str | None = "/") -> Layer:
        return merge(one.settings for one in self.matches(address, vhost))

    def resolve(self, address: str, vhost: str | None = "/") -> ResolvedSettings:
        """The settings of an address, without destination policies. Cached; equal sets of entries give one object."""
        key = (vhost, address) if self._indexes else _ANY  # without entries all addresses are equal
        resolved = self._by_address.get(key)
        if resolved is None:
            resolved = self._of_entries(self.matches(address, vhost))
            _remember(self._by_address, key, resolved)
        return resolved

    def resolve_topic(self, name: str, vhost: str | None = "/") -> ResolvedSettings:
        """The settings of a topic: of publishes with that routing key, or to that exchange. Cached."""
        if self.destinations is NO_DESTINATIONS:
            return self.resolve(name, vhost)
        key = (TOPIC_ENTRY, vhost, name, name)
        resolved = self._by_destination.get(key)
        if resolved is None:
            resolved = self._of_entries(self.topic_entries(name, vhost))
            _remember(self._by_destination, key, resolved)
        return resolved

    def topic_layer(self, name: str, vhost: str | None = "/") -> Layer:
        """The layer that a topic sets for the queues of its transient subscribers (queues page E.2). Cached."""
        key = (vhost, name)
        layer = self._topic_layers.get(key)
        if layer is None:
            layer = subscriber_settings(merge(one.settings for one in self.topic_entries(name, vhost)))
            _remember(self._topic_layers, key, layer)
        return layer

    def queue_entries(self, address: str, vhost: str | None, name: str | None = None) -> tuple[Entry, ...]:
        """The destination policy of a queue, then the entries of its address. `name` None: that of the address."""
        return self._with_policy(self.destinations.for_queue(address if name is None else name), address, vhost)

    def topic_entries(self, name: str, vhost: str | None) -> tuple[Entry, ...]:
        """The destination policy of a topic, then the entries of the address of that name."""
        return self._with_policy(self.destinations.for_topic(name), name, vhost)

    def _with_policy(self, policy: Entry | None, address: str, vhost: str | None) -> tuple[Entry, ...]:
        found = self.matches(address, vhost)
        return found if policy is None else (policy, *found)

    def _of_entries(self, found: tuple[Entry, ...]) -> ResolvedSettings:
        """The settings of some entries, most specific first."""
        group = tuple(id(one) for one in found)
        resolved = self._by_entries.get(group)
        if resolved is None:
            resolved = self._finish(merge(one.settings for one in found), NOTHING_SET)
            _remember(self._by_entries, group, resolved)
        return resolved

    def sets_id_cache_size(self, address: str, vhost: str | None = "/") -> bool:
        """Whether an id-cache-size is configured for an address or for the broker."""
        return self.id_cache_size is not None or "id_cache_size" in self.merged(address, vhost)

    def resolve_queue(
        self, address: str, vhost: str | None, own: Layer, policy: Layer = NOTHING_SET, name: str | None = None
    ) -> ResolvedSettings:
        """The settings of a queue: its own, over its policy's, over its destination policy's, over its address's.

        Args: own: of `settings_of_arguments`.
              policy: the layer of its policy (RabbitMQ's kind).
              name: of the queue, for its destination policy; None: that of its address.
        """
        if not policy and not own:
            return self._resolve_plain_queue(address, vhost, name)
        found = self.queue_entries(address, vhost, name)
        key = (tuple(id(one) for one in found), frozenset(own.items()), frozenset(policy.items()))
        resolved = self._by_layers.get(key)
        if resolved is None:
            own = with_fewer_attempts(own, policy)
            resolved = self._finish(merge(one.settings for one in found), own)
            _remember(self._by_layers, key, resolved)
        return resolved

    def _resolve_plain_queue(self, address: str, vhost: str | None, name: str | None) -> ResolvedSettings:
        """The settings of a queue without arguments and without a policy. Cached."""
        if self.destinations is NO_DESTINATIONS:
            return self.resolve(address, vhost)
        key = (QUEUE_ENTRY, vhost, address, address if name is None else name)
        resolved = self._by_destination.get(key)
        if resolved is None:
            resolved = self._of_entries(self.queue_entries(address, vhost, name))
            _remember(self._by_destination, key, resolved)
        return resolved

    def _finish(self, merged: Layer, own: Layer) -> ResolvedSettings:
        attempts = default_attempts(merged, self.attempts)
        return resolve(merge((own, merged)), attempts=attempts, id_cache_size=self.id_cache_size, usage=self.usage)

    def sources(self, address: str, vhost: str | None = "/", name: str | None = None) -> dict[str, Entry]:
        """Attribute -> the entry that gives a queue its value; attributes that no entry sets are absent."""
        return sources_of(self.queue_entries(address, vhost, name))


def sources_of(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Attribute -> the first of the entries that sets it. Args: entries: most specific first."""
    given: dict[str, Entry] = {}
    for one in entries:
        for attribute in one.settings:
            given.setdefault(attribute, one)
    return given


def _remember(cache: dict[Any, Any], key: object, found: object) -> None:
    if len(cache) >= CACHE_MAX:
        del cache[next(iter(cache))]
    cache[key] = found


#: Without any configuration: built-in defaults for every address.
NO_SETTINGS = SettingsRepository()
