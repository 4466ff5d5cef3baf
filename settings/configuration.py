"""The configuration of a broker: the table of its keys, and what all files together say.

A key whose feature this version does not have yet is accepted with a warning. Source: interfaces page, "Configuration
keys"; address-settings page 6.1 for those that Artemis and HornetQ have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .access_declarations import LimitsDeclaration, UserDeclaration
from .declarations import Divert, ExchangeDeclaration, QueueDeclaration
from .faults import Origin
from .policies import Policy
from .profiles import PROFILES, Profile
from .repository import NO_SETTINGS, SettingsRepository
from .values import (
    INT_MAX,
    Reader,
    boolean,
    duration_ms,
    duration_or_off_ms,
    integer,
    networks,
    size_between,
    size_bytes,
    text,
    texts,
    word,
)


@dataclass(slots=True, frozen=True)
class Key:
    """How a key is read, what it is when unsaid, and whether this version heeds it."""

    read: Reader
    default: Any
    is_heeded: bool = True


_COUNT = integer(0, 2**31)

#: Table -> key -> how it is read.
KEYS: dict[str, dict[str, Key]] = {
    "broker": {
        "listen": Key(texts, ("127.0.0.1:5672",)),
        "data": Key(text, "leveret-data"),
        "definitions": Key(text, None),
        "profile": Key(word(*PROFILES), "leveret"),
        "heartbeat": Key(duration_ms, 60_000),
        "channel-max": Key(integer(1, 65535), 2047),
        "frame-max": Key(integer(4096, 2**31 - 1), 131072),
        "mechanisms": Key(texts, ("PLAIN", "AMQPLAIN")),
        "anonymous-user": Key(text, "guest"),
        "proxy-protocol-from": Key(networks, ()),
        "refused-login-delay": Key(duration_ms, 3_000),
        "product": Key(text, "RabbitMQ"),
        "product-version": Key(text, None),
        "cluster-name": Key(text, "leveret@localhost"),
        "nack-counts": Key(boolean, None),
        "reject-counts": Key(boolean, True),
        "delay-on-connection-loss": Key(boolean, False),
        "default-max-delivery-attempts": Key(integer(-1, INT_MAX), None),
        "message-address": Key(word("exchange", "exchange-and-key", "key"), "exchange"),
        "legacy-hornetq-headers": Key(boolean, False),
        "uuid-namespace": Key(text, ""),
        "id-cache-size": Key(integer(0, INT_MAX), 20_000),
        "configuration-file-refresh-period": Key(duration_or_off_ms, 5_000),
        "persist-delivery-count-before-delivery": Key(boolean, False),
        "max-redelivery-records": Key(integer(-1, 2**31), 10),
        "persist-id-cache": Key(boolean, True, False),
        "message-expiry-scan-period": Key(duration_or_off_ms, 30_000, False),
        "consumer-timeout": Key(duration_or_off_ms, 1_800_000),
        "address-queue-scan-period": Key(duration_or_off_ms, 30_000),
        "global-max-size": Key(size_between(0, or_off=True), -1, False),
        "global-max-messages": Key(integer(-1, 2**63 - 1), -1, False),
        "internal-naming-prefix": Key(text, "$.artemis.internal.", False),
    },
    "journal": {
        "fsync": Key(word("commit", "interval", "never"), "commit"),
        "fsync-interval": Key(duration_ms, 200),
        "scope": Key(word("durable", "all"), "durable"),
        "segment-size": Key(size_bytes, 64 * 1024**2),
        "segment-age": Key(duration_ms, 3_600_000),
        "retain": Key(duration_ms, None),
    },
    "limits": {
        "memory": Key(size_bytes, 256 * 1024**2),
        "unsent-per-connection": Key(size_bytes, 1024**2),
        "handshake-timeout": Key(duration_ms, 10_000),
        "half-open-connections": Key(integer(1, 2**31), 256),
        "connections": Key(_COUNT, 0),
        "channels-per-connection": Key(integer(1, 65535), None),
        "queues": Key(_COUNT, 0),
        "bindings": Key(_COUNT, 0),
        "consumers-per-channel": Key(_COUNT, 0),
        "unacked-per-channel": Key(_COUNT, 1_000_000),
        "headers-conditions": Key(_COUNT, 100_000),
        "message-size": Key(size_bytes, None),
        "incomplete-per-connection": Key(size_bytes, 256 * 1024**2),
        "transaction-size": Key(size_bytes, 128 * 1024**2),
        "log-lines-per-second": Key(_COUNT, 100),
        "table-depth": Key(integer(1, 64), 64, False),
        "history-events": Key(_COUNT, 100_000, False),
    },
    "tls": {
        "certificate": Key(text, None),
        "key": Key(text, None),
        "client-ca": Key(text, None),
        "verify": Key(word("none", "optional", "required"), "none"),
        "minimum": Key(word("1.2", "1.3"), "1.2"),
        "ssl-cert-login-from": Key(
            word("common-name", "distinguished-name", "subject-alternative-name"), "common-name"
        ),
        "ssl-cert-login-san-type": Key(word("dns", "email", "ip", "uri"), "dns"),
        "ssl-cert-login-san-index": Key(integer(0, 1000), 0),
    },
}

#: Keys that say nothing by default -> what the profile calls it.
BY_PROFILE: dict[tuple[str, str], str] = {
    ("broker", "nack-counts"): "nack_counts",
    ("broker", "product-version"): "version",
    ("limits", "message-size"): "message_size_max",
}


@dataclass(slots=True, frozen=True)
class Configuration:
    """What all files together say; `value` gives defaults for what they don't."""

    said: Mapping[tuple[str, str], Any] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = field(default=())
    repository: SettingsRepository = field(default=NO_SETTINGS)
    queues: tuple[QueueDeclaration, ...] = field(default=())
    exchanges: tuple[ExchangeDeclaration, ...] = field(default=())
    diverts: tuple[Divert, ...] = field(default=())
    vhosts: tuple[str, ...] = field(default=())  # that are declared, or that something declared is in
    origins: Mapping[tuple[str, str], Origin] = field(default_factory=lambda: MappingProxyType({}))  # of what is said
    limits: Mapping[str, LimitsDeclaration] = field(default_factory=lambda: MappingProxyType({}))  # by virtual host
    users: tuple[UserDeclaration, ...] = field(default=())
    policies: tuple[Policy, ...] = field(default=())

    def value(self, table: str, key: str) -> Any:
        """The value of `[table] key`, or its default, or what the profile has where that decides."""
        said = self.said.get((table, key), KEYS[table][key].default)
        attribute = BY_PROFILE.get((table, key)) if said is None else None
        return said if attribute is None else getattr(self.profile, attribute)

    @property
    def profile(self) -> Profile:
        """Whose semantics the broker follows."""
        return PROFILES[self.value("broker", "profile")]
