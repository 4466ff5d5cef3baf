"""From the configuration to the options of each part: the one place that knows which key is which field.

Each function reads only the keys of its part, so that what a reload changes, and when, can be looked up per part.
Source: interfaces page, "Configuration keys".
"""

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..amqp_frontend.options import FrontendOptions
from ..engine import UNLIMITED, BrokerOptions, MessageAddress
from ..settings import Configuration

if TYPE_CHECKING:
    from ..journal import JournalOptions

T = TypeVar("T")


class _Table:
    """One table of a configuration. A value has the type that its key's reader gives; the wrong one is our mistake."""

    def __init__(self, configuration: Configuration, name: str) -> None:
        self._configuration = configuration
        self._name = name

    def _value(self, key: str, kind: type[T]) -> T:
        value = self._configuration.value(self._name, key)
        assert isinstance(value, kind), f"[{self._name}] {key} is {value!r}"
        return value

    def number(self, key: str) -> int:
        return self._value(key, int)

    def number_or_none(self, key: str) -> int | None:
        return None if self._configuration.value(self._name, key) is None else self.number(key)

    def flag(self, key: str) -> bool:
        return self._value(key, bool)

    def text(self, key: str) -> str:
        return self._value(key, str)

    def several(self, key: str) -> tuple[Any, ...]:
        return self._value(key, tuple)


def broker_options(configuration: Configuration) -> BrokerOptions:
    """What the engine does in general, by the [broker] and [limits] tables and the profile."""
    broker, limits, profile = _Table(configuration, "broker"), _Table(configuration, "limits"), configuration.profile
    scan_ms, timeout_ms = broker.number("address-queue-scan-period"), broker.number("consumer-timeout")
    return BrokerOptions(
        nack_counts=broker.flag("nack-counts"),
        reject_counts=broker.flag("reject-counts"),
        delay_on_connection_loss=broker.flag("delay-on-connection-loss"),
        message_address=MessageAddress(broker.text("message-address")),
        legacy_hornetq_headers=broker.flag("legacy-hornetq-headers"),
        address_queue_scan_period_ms=scan_ms if scan_ms > 0 else None,
        consumer_timeout_ms=timeout_ms if timeout_ms > 0 else None,
        has_shared_prefetch=profile.has_shared_prefetch,
        quorum_delivery_limit=profile.quorum_delivery_limit,
        quorum_priorities=profile.quorum_priorities,
        continues_deaths=profile.continues_deaths,
        tells_last_death=profile.tells_last_death,
        has_transient_queues=profile.has_transient_queues,
        classic_tells_attempts=profile.classic_tells_attempts,
        has_consumer_filters=profile.has_consumer_filters,
        delays_everywhere=profile.delays_everywhere,
        queues_max=limits.number("queues"),
        bindings_max=limits.number("bindings"),
        headers_conditions_max=limits.number("headers-conditions"),
        topic_states_max=limits.number("topic-states"),
        transaction_size_max=limits.number("transaction-size"),
        unacked_per_session_max=limits.number("unacked-per-channel") or UNLIMITED,
        busy_queue_ready_max=limits.number("ready-per-busy-queue") or UNLIMITED,
        system_usage=configuration.system_usage,
        whole_limits=configuration.whole_limits,
        flow=configuration.flow,
    )


def unsent_max(configuration: Configuration) -> int:
    """Octets that wait for one connection before its queues wait, too; fixed when the broker is made."""
    return _Table(configuration, "limits").number("unsent-per-connection")


def frontend_options(
    configuration: Configuration, *, tls: ssl.SSLContext | None = None, descriptor_max: int | None = None
) -> FrontendOptions:
    """What the AMQP frontend needs to know of a configuration.

    Args:
        tls: what the configuration's certificate files came to.
        descriptor_max: as in `FrontendOptions`.
    """
    broker, limits = _Table(configuration, "broker"), _Table(configuration, "limits")
    tls_table = _Table(configuration, "tls")
    return FrontendOptions(
        heartbeat_s=-(-broker.number("heartbeat") // 1000),
        channel_max=limits.number_or_none("channels-per-connection") or broker.number("channel-max"),
        frame_max=broker.number("frame-max"),
        mechanisms=broker.several("mechanisms"),
        anonymous_user=broker.text("anonymous-user"),
        handshake_timeout_ms=limits.number("handshake-timeout"),
        first_octet_timeout_ms=limits.number("first-octet-timeout"),
        refused_login_delay_ms=broker.number("refused-login-delay"),
        half_open_max=limits.number("half-open-connections"),
        connections_max=limits.number("connections"),
        descriptor_max=descriptor_max,
        consumers_per_channel_max=limits.number("consumers-per-channel"),
        message_size_max=limits.number("message-size"),
        incomplete_max=limits.number("incomplete-per-connection"),
        honour_flow=configuration.profile.honours_flow,
        product=broker.text("product"),
        version=broker.text("product-version"),
        cluster_name=broker.text("cluster-name"),
        tls=tls,
        ssl_cert_login_from=tls_table.text("ssl-cert-login-from"),
        ssl_cert_login_san_type=tls_table.text("ssl-cert-login-san-type"),
        ssl_cert_login_san_index=tls_table.number("ssl-cert-login-san-index"),
        proxy_protocol_from=broker.several("proxy-protocol-from"),
    )


def journal_options(configuration: Configuration) -> "JournalOptions":
    """As the [journal] table says."""
    from ..journal import JournalOptions  # not for a broker that keeps everything in memory

    journal = _Table(configuration, "journal")
    return JournalOptions(
        fsync=journal.text("fsync"),
        fsync_interval_ms=journal.number("fsync-interval"),
        segment_size=journal.number("segment-size"),
        scope=journal.text("scope"),
        segment_age_ms=journal.number("segment-age"),
        reserve_size=journal.number("reserve"),
        retain_ms=journal.number_or_none("retain"),
    )


@dataclass(slots=True, frozen=True)
class RecordingOptions:
    """What is recorded beside what recovery needs, and how much memory ready messages may take.

    `counts_max`: larger delivery counts are not written; -1: all are. `keeps_ids`: duplicate ids outlive a restart.
    `memory_size`: octets.
    """

    persists_deliveries: bool
    counts_max: int
    keeps_ids: bool
    memory_size: int


def recording_options(configuration: Configuration) -> RecordingOptions:
    """What is fixed when a broker's journal is opened, beside the journal's own options."""
    broker = _Table(configuration, "broker")
    return RecordingOptions(
        persists_deliveries=broker.flag("persist-delivery-count-before-delivery"),
        counts_max=broker.number("max-redelivery-records"),
        keeps_ids=broker.flag("persist-id-cache"),
        memory_size=_Table(configuration, "limits").number("memory"),
    )


def log_lines_per_second(configuration: Configuration) -> int:
    """How many lines the AMQP frontend may log; 0: any number."""
    return _Table(configuration, "limits").number("log-lines-per-second")


def refresh_period_ms(configuration: Configuration) -> int:
    """How often the configuration's files are looked at; negative: never."""
    return _Table(configuration, "broker").number("configuration-file-refresh-period")
