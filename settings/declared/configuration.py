"""The configuration of a broker: the table of its keys, and the contents of all files together.

A key for a feature that this version does not have yet is accepted with a warning. Source: interfaces page,
"Configuration keys"; address-settings page 6.1 for those that Artemis and HornetQ have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..addresses.repository import NO_SETTINGS, SettingsRepository
from ..faults import Origin
from ..flow_control import Flow, SystemUsage, WholeLimits, percentage, products, size_or_percent
from ..lifetime import (
    ARRIVAL,
    AT_BINDING,
    AT_CONNECTION,
    AT_CREATION,
    LIVE,
    MIXED,
    RESTART,
    WITHOUT_MEANING,
    Lifetime,
)
from ..policies.policies import Policy
from ..values import (
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
from .access_declarations import LimitsDeclaration, UserDeclaration
from .declarations import Divert, ExchangeDeclaration, QueueDeclaration
from .logged_topics import LoggedTopic
from .profiles import PROFILES, Profile, profile_name


@dataclass(slots=True, frozen=True)
class Key:
    """How a key is read, its default, and when a changed value takes effect after a reload.

    `reason`: why it is accepted without meaning here; empty for all others.
    """

    read: Reader
    default: Any
    acts: Lifetime
    reason: str = ""

    @property
    def is_supported(self) -> bool:
        """Whether it has an effect."""
        return self.acts is not WITHOUT_MEANING


_COUNT = integer(0, 2**31)

#: Table -> key -> how it is read.
KEYS: dict[str, dict[str, Key]] = {
    "broker": {
        "listen": Key(texts, ("127.0.0.1:5672",), RESTART),
        "data": Key(text, "leveret-data", RESTART),
        "definitions": Key(text, None, RESTART),
        "definitions-all-or-nothing": Key(boolean, False, RESTART),
        "profile": Key(profile_name, "leveret", MIXED),
        "heartbeat": Key(duration_ms, 60_000, AT_CONNECTION),
        "channel-max": Key(integer(1, 65535), 2047, AT_CONNECTION),
        "frame-max": Key(integer(4096, 2**31 - 1), 131072, AT_CONNECTION),
        "mechanisms": Key(texts, ("PLAIN", "AMQPLAIN"), AT_CONNECTION),
        "anonymous-user": Key(text, "guest", AT_CONNECTION),
        "proxy-protocol-from": Key(networks, (), AT_CONNECTION),
        "refused-login-delay": Key(duration_ms, 3_000, AT_CONNECTION),
        "product": Key(text, "RabbitMQ", AT_CONNECTION),
        "product-version": Key(text, None, AT_CONNECTION),
        "cluster-name": Key(text, "leveret@localhost", AT_CONNECTION),
        "nack-counts": Key(boolean, None, LIVE),
        "reject-counts": Key(boolean, True, LIVE),
        "delay-on-connection-loss": Key(boolean, False, LIVE),
        "default-max-delivery-attempts": Key(integer(-1, INT_MAX), None, LIVE),
        "message-address": Key(word("exchange", "exchange-and-key", "key"), "exchange", ARRIVAL),
        "legacy-hornetq-headers": Key(boolean, False, LIVE),
        "uuid-namespace": Key(text, "", LIVE),
        "id-cache-size": Key(integer(0, INT_MAX), 20_000, ARRIVAL),
        "configuration-file-refresh-period": Key(duration_or_off_ms, 5_000, LIVE),
        "persist-delivery-count-before-delivery": Key(boolean, False, RESTART),
        "max-redelivery-records": Key(integer(-1, 2**31), 10, RESTART),
        "persist-id-cache": Key(boolean, True, RESTART),
        "message-expiry-scan-period": Key(
            duration_or_off_ms, 30_000, WITHOUT_MEANING, "Nothing is scanned: a message expires at its time."
        ),
        "consumer-timeout": Key(duration_or_off_ms, 1_800_000, LIVE),
        "address-queue-scan-period": Key(duration_or_off_ms, 30_000, LIVE),
        "global-max-size": Key(size_between(0, or_off=True), -1, LIVE),
        "global-max-messages": Key(integer(-1, 2**63 - 1), -1, LIVE),
        "internal-naming-prefix": Key(
            text, "$.artemis.internal.", WITHOUT_MEANING, "There are no internal queues whose names it could begin."
        ),
    },
    "journal": {
        "fsync": Key(word("commit", "interval", "never"), "commit", RESTART),
        "fsync-interval": Key(duration_ms, 200, RESTART),
        "scope": Key(word("durable", "all"), "durable", RESTART),
        "segment-size": Key(size_bytes, 64 * 1024**2, RESTART),
        "segment-age": Key(duration_ms, 3_600_000, RESTART),
        "reserve": Key(size_bytes, 40 * 1024**2, RESTART),
        "retain": Key(duration_ms, None, RESTART),
    },
    "limits": {
        "memory": Key(size_bytes, 256 * 1024**2, RESTART),
        "unsent-per-connection": Key(size_bytes, 1024**2, RESTART),
        "handshake-timeout": Key(duration_ms, 10_000, AT_CONNECTION),
        "first-octet-timeout": Key(duration_ms, 3_000, AT_CONNECTION),
        "half-open-connections": Key(integer(1, 2**31), 256, AT_CONNECTION),
        "connections": Key(_COUNT, 0, AT_CONNECTION),
        "channels-per-connection": Key(integer(1, 65535), None, AT_CONNECTION),
        "queues": Key(_COUNT, 0, AT_CREATION),
        "bindings": Key(_COUNT, 0, AT_BINDING),
        "consumers-per-channel": Key(_COUNT, 0, AT_CONNECTION),
        "unacked-per-channel": Key(_COUNT, 1_000_000, LIVE),
        "ready-per-busy-queue": Key(_COUNT, 500, LIVE),
        "headers-conditions": Key(_COUNT, 100_000, AT_BINDING),
        "topic-states": Key(_COUNT, 200_000, AT_BINDING),
        "message-size": Key(size_bytes, None, AT_CONNECTION),
        "incomplete-per-connection": Key(size_bytes, 256 * 1024**2, AT_CONNECTION),
        "transaction-size": Key(size_bytes, 128 * 1024**2, LIVE),
        "log-lines-per-second": Key(_COUNT, 100, LIVE),
        "table-depth": Key(
            integer(1, 64), 64, WITHOUT_MEANING, "The bound is always 64; a lower one would refuse valid tables."
        ),
        "history-events": Key(_COUNT, 100_000, RESTART),
    },
    "system-usage": {
        "memory": Key(size_or_percent, SystemUsage().memory, LIVE),
        "store": Key(size_or_percent, SystemUsage().store, LIVE),
        "temp": Key(size_or_percent, SystemUsage().temp, LIVE),
        "send-fail-if-no-space": Key(boolean, False, LIVE),
        "send-fail-if-no-space-after": Key(duration_ms, 0, LIVE),
    },
    "flow": {
        "low-mark": Key(percentage, None, LIVE),
        "max-stall": Key(duration_ms, 0, LIVE),
        "hold-bytes": Key(size_bytes, Flow().hold_size, LIVE),
        "hold-spool": Key(size_bytes, Flow().hold_spool_size, LIVE),
        "use-channel-flow": Key(products, (), LIVE),
    },
    "management": {
        "enabled": Key(boolean, True, RESTART),
        "listen": Key(texts, ("127.0.0.1:15672",), RESTART),
        "metrics": Key(text, "127.0.0.1:15692", RESTART),
        "metrics-open": Key(boolean, False, LIVE),
        "plain-outside": Key(boolean, False, RESTART),
        "node": Key(text, "rabbit@localhost", LIVE),
        "path-prefix": Key(text, "", LIVE),
        "hosts": Key(texts, (), LIVE),
        "cors-origins": Key(texts, (), LIVE),
        "trusted-proxies": Key(networks, (), LIVE),
        "max-body": Key(size_between(1), 20_000_000, LIVE),
        "max-connections": Key(integer(1, 2**31), 100, LIVE),
    },
    "tls": {
        "certificate": Key(text, None, AT_CONNECTION),
        "key": Key(text, None, AT_CONNECTION),
        "client-ca": Key(text, None, AT_CONNECTION),
        "verify": Key(word("none", "optional", "required"), "none", AT_CONNECTION),
        "minimum": Key(word("1.2", "1.3"), "1.2", AT_CONNECTION),
        "ssl-cert-login-from": Key(
            word("common-name", "distinguished-name", "subject-alternative-name"), "common-name", AT_CONNECTION
        ),
        "ssl-cert-login-san-type": Key(word("dns", "email", "ip", "uri"), "dns", AT_CONNECTION),
        "ssl-cert-login-san-index": Key(integer(0, 1000), 0, AT_CONNECTION),
    },
}

#: Keys whose default depends on the profile -> its attribute.
BY_PROFILE: dict[tuple[str, str], str] = {
    ("broker", "nack-counts"): "nack_counts",
    ("broker", "product-version"): "version",
    ("limits", "message-size"): "message_size_max",
}


@dataclass(slots=True, frozen=True)
class Configuration:
    """The contents of all files; `explicit` has the keys that they set, `value` also gives defaults."""

    explicit: Mapping[tuple[str, str], Any] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = field(default=())
    repository: SettingsRepository = field(default=NO_SETTINGS)
    queues: tuple[QueueDeclaration, ...] = field(default=())
    exchanges: tuple[ExchangeDeclaration, ...] = field(default=())
    diverts: tuple[Divert, ...] = field(default=())
    vhosts: tuple[str, ...] = field(default=())  # declared, or named by something declared
    origins: Mapping[tuple[str, str], Origin] = field(default_factory=lambda: MappingProxyType({}))  # of `explicit`
    limits: Mapping[str, LimitsDeclaration] = field(default_factory=lambda: MappingProxyType({}))  # by virtual host
    users: tuple[UserDeclaration, ...] = field(default=())
    policies: tuple[Policy, ...] = field(default=())
    system_usage: SystemUsage | None = None  # None: without [system-usage]
    logged_topics: tuple[LoggedTopic, ...] = ()
    included: tuple[str, ...] = ()  # files that the given ones include

    def value(self, table: str, key: str) -> Any:
        """The value of `[table] key`, or its default, which may depend on the profile."""
        value = self.explicit.get((table, key), KEYS[table][key].default)
        attribute = BY_PROFILE.get((table, key)) if value is None else None
        return value if attribute is None else getattr(self.profile, attribute)

    @property
    def flow(self) -> Flow:
        """[flow]."""
        return Flow(
            self.value("flow", "low-mark") or 0,
            self.value("flow", "max-stall"),
            self.value("flow", "hold-bytes"),
            self.value("flow", "hold-spool"),
            self.value("flow", "use-channel-flow"),
        )

    @property
    def whole_limits(self) -> WholeLimits:
        """What all addresses together may hold."""
        octets, messages = self.value("broker", "global-max-size"), self.value("broker", "global-max-messages")
        return WholeLimits(octets if octets >= 0 else None, messages if messages >= 0 else None)

    @property
    def profile(self) -> Profile:
        """Whose semantics the broker follows."""
        return PROFILES[self.value("broker", "profile")]
