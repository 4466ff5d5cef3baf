"""Makes the options of each part of the broker from keys of the configuration.

Source: interfaces page, "Configuration keys".
"""

import ssl
from typing import TYPE_CHECKING

from ..amqp_frontend.options import FrontendOptions
from ..engine import UNLIMITED, BrokerOptions, MessageAddress
from ..settings import Configuration
from ..settings.declared.cluster import cluster_name_of, node_of

if TYPE_CHECKING:
    from ..journal import JournalOptions


def broker_options(configuration: Configuration) -> BrokerOptions:
    """The engine's options, from the [broker], [limits] and [cluster] tables and the profile."""
    broker, limits, profile = configuration.broker, configuration.broker_limits, configuration.profile
    scan_ms, timeout_ms = broker.address_queue_scan_period_ms, broker.consumer_timeout_ms
    return BrokerOptions(
        nack_counts=broker.nack_counts,
        reject_counts=broker.reject_counts,
        delay_on_connection_loss=broker.delay_on_connection_loss,
        message_address=MessageAddress(broker.message_address),
        legacy_hornetq_headers=broker.legacy_hornetq_headers,
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
        queues_max=limits.queues,
        bindings_max=limits.bindings,
        headers_conditions_max=limits.headers_conditions,
        topic_states_max=limits.topic_states,
        transaction_size_max=limits.transaction_size,
        unacked_per_session_max=limits.unacked_per_channel or UNLIMITED,
        busy_queue_ready_max=limits.ready_per_busy_queue or UNLIMITED,
        system_usage=configuration.system_usage,
        whole_limits=configuration.whole_limits,
        flow=configuration.flow,
        transfer_after_ms=configuration.cluster.transfer_after_ms,
    )


def frontend_options(
    configuration: Configuration, *, tls: ssl.SSLContext | None = None, descriptor_max: int | None = None
) -> FrontendOptions:
    """The options of the AMQP frontend.

    Args:
        tls: from the configuration's certificate files.
        descriptor_max: as in `FrontendOptions`.
    """
    broker, limits = configuration.broker, configuration.broker_limits
    tls_keys = configuration.tls
    return FrontendOptions(
        heartbeat_s=-(-broker.heartbeat_ms // 1000),
        channel_max=limits.channels_per_connection or broker.channel_max,
        frame_max=broker.frame_max,
        mechanisms=broker.mechanisms,
        anonymous_user=broker.anonymous_user,
        handshake_timeout_ms=limits.handshake_timeout_ms,
        first_octet_timeout_ms=limits.first_octet_timeout_ms,
        refused_login_delay_ms=broker.refused_login_delay_ms,
        half_open_max=limits.half_open_connections,
        connections_max=limits.connections,
        descriptor_max=descriptor_max,
        consumers_per_channel_max=limits.consumers_per_channel,
        message_size_max=limits.message_size,
        incomplete_max=limits.incomplete_per_connection,
        honours_flow=configuration.profile.honours_flow,
        product=broker.product,
        version=broker.product_version,
        cluster_name=cluster_name_of(configuration),
        node=node_of(configuration) if configuration.is_clustered else "",
        tls=tls,
        ssl_cert_login_from=tls_keys.ssl_cert_login_from,
        ssl_cert_login_san_type=tls_keys.ssl_cert_login_san_type,
        ssl_cert_login_san_index=tls_keys.ssl_cert_login_san_index,
        proxy_protocol_from=broker.proxy_protocol_from,
    )


def journal_options(configuration: Configuration) -> "JournalOptions":
    from ..journal import JournalOptions  # not loaded for a broker in memory

    journal = configuration.journal
    return JournalOptions(
        fsync=journal.fsync,
        fsync_interval_ms=journal.fsync_interval_ms,
        segment_size=journal.segment_size,
        scope=journal.scope,
        segment_age_ms=journal.segment_age_ms,
        reserve_size=journal.reserve,
        retain_ms=journal.retain_ms,
        log_ms=max((topic.kept_ms for topic in configuration.logged_topics), default=0),
        reader_age_ms=journal.reader_age_ms,
        reader_size=journal.reader_size,
    )
