"""The keys of the broker's tables in TOML files: one row each. `Configuration` has the values.

A key that has no effect here (`meaningless`) is accepted with a warning. Source: interfaces page, "Configuration keys";
address-settings page 6.1 for those that Artemis and HornetQ have.
"""

from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Network

from ..frozen import frozen
from ..lifetime import ARRIVAL, AT_BINDING, AT_CONNECTION, AT_CREATION, LIVE, MIXED, RESTART
from ..profiles import profile_name
from ..values import (
    BOOLEAN,
    BYTES,
    BYTES_OR_OFF,
    COUNT_INT,
    DELAY,
    DELAY_OR_OFF,
    HEARTBEAT,
    INT_MAX,
    LONG_MAX,
    NETWORKS,
    PERIOD,
    SOME_TEXTS,
    TEXT,
    TEXTS,
    Kind,
    in_range,
    one_of,
    size_between,
)
from .cluster import ClusterKeys, ClusterTlsKeys, EtcdTlsKeys
from .flow_control import Flow, UsageKeys
from .row import Row, columns_of, meaningless, setting

Network = IPv4Network | IPv6Network

PROFILE = Kind(profile_name)


@frozen
class Key(Row):
    """The row of a key. `by_profile`: the attribute of the profile with the default.

    `is_foreign`: files of Artemis have it, too. `is_of_node`: each node of a cluster has its own value: a name, a place
    where it listens, the path of a file.
    """

    by_profile: str = ""
    is_foreign: bool = False
    is_of_node: bool = False


of_node = partial(setting, is_of_node=True)


# These classes have no instances, so no methods are generated for them. `Configuration` types its values by them.
# fmt: off
@dataclass(init=False, repr=False, eq=False)
class BrokerKeys:
    """[broker]."""

    listen: tuple[str, ...] = of_node(SOME_TEXTS, ("127.0.0.1:5672",), RESTART,
        help="Addresses to accept connections on: `HOST:PORT`, `amqps://HOST:PORT` or `unix:PATH`.")
    data: str = of_node(TEXT, "leveret-data", RESTART,
        help="Directory of the journal, where durable queues and persistent messages are kept.")
    definitions: str | None = of_node(TEXT, None, RESTART,
        help="JSON file of RabbitMQ definitions, imported at the start.")
    definitions_all_or_nothing: bool = setting(BOOLEAN, False, RESTART,
        help="Whether a fault in that file keeps the broker from starting; otherwise the entry with the fault is left "
        "out, with a warning.")
    profile: str = setting(PROFILE, "leveret", MIXED,
        help="RabbitMQ version to follow where its versions differ, see [profiles.md](profiles.md).")
    heartbeat_ms: int = setting(HEARTBEAT, 60_000, AT_CONNECTION,
        help="Heartbeat interval that clients are offered, rounded up to seconds; 0 offers none.")
    channel_max: int = setting(in_range(1, 65535), 2047, AT_CONNECTION,
        help="Maximum number of channels of a connection, as it is offered to clients.")
    frame_max: int = setting(in_range(4096, 2**31 - 1), 131072, AT_CONNECTION,
        help="Largest frame that clients are offered, in octets.")
    mechanisms: tuple[str, ...] = setting(SOME_TEXTS, ("PLAIN", "AMQPLAIN"), AT_CONNECTION,
        help="SASL mechanisms that clients may log in with: PLAIN, AMQPLAIN, EXTERNAL, ANONYMOUS.")
    anonymous_user: str = setting(TEXT, "guest", AT_CONNECTION,
        help="User that a client becomes when it logs in with the mechanism ANONYMOUS.")
    proxy_protocol_from: tuple[Network, ...] = setting(NETWORKS, (), AT_CONNECTION,
        help="Networks whose connections must begin with a PROXY header, see [tls.md](tls.md).")
    refused_login_delay_ms: int = setting(DELAY, 3_000, AT_CONNECTION,
        help="How long a connection stays open after its login was refused.")
    product: str = setting(TEXT, "RabbitMQ", AT_CONNECTION,
        help="Product name in the server properties; some clients look for `RabbitMQ`.")
    product_version: str = setting(TEXT, None, AT_CONNECTION, by_profile="version",
        help="Version in the server properties.")
    cluster_name: str = setting(TEXT, "leveret@localhost", AT_CONNECTION,
        help="Name that clients and tools show, until an operator sets another; a cluster has its name in `[cluster]`.")
    nack_counts: bool = setting(BOOLEAN, None, LIVE, by_profile="nack_counts",
        help="Whether a nack with requeue counts as a failed delivery attempt.")
    reject_counts: bool = setting(BOOLEAN, True, LIVE,
        help="Whether a reject with requeue counts as a failed delivery attempt.")
    delay_on_connection_loss: bool = setting(BOOLEAN, False, LIVE,
        help="Whether `redelivery-delay` also applies after a lost connection.")
    default_max_delivery_attempts: int | None = setting(in_range(-1, INT_MAX), None, LIVE,
        help="`max-delivery-attempts` where no address-setting or argument gives one.")
    message_address: str = setting(one_of("exchange", "exchange-and-key", "key"), "exchange", ARRIVAL,
        help="Address of a message sent to a named exchange: `exchange`, `exchange-and-key` or `key`.")
    legacy_hornetq_headers: bool = setting(BOOLEAN, False, LIVE, is_foreign=True,
        help="Whether dead and expired messages have `_HQ_ORIG_*` headers; HornetQ files imply it.")
    uuid_namespace: str = setting(TEXT, "", LIVE, is_foreign=True,
        help="Prefix under which settings are looked up for queues that the server named.")
    id_cache_size: int = setting(in_range(0, INT_MAX), 20_000, ARRIVAL, is_foreign=True,
        help="Number of ids that duplicate detection remembers, where no address-setting gives one.")
    configuration_file_refresh_period_ms: int = setting(DELAY_OR_OFF, 5_000, LIVE, is_foreign=True,
        help="How often the configuration's files are checked for changes; -1 never.")
    persist_delivery_count_before_delivery: bool = setting(BOOLEAN, False, RESTART, is_foreign=True,
        help="Whether attempts are recorded before delivery, to survive a crash.")
    max_redelivery_records: int = setting(in_range(-1, 2**31), 10, RESTART, is_foreign=True,
        help="Delivery count above which returns are no longer recorded; -1 records all.")
    persist_id_cache: bool = setting(BOOLEAN, True, RESTART, is_foreign=True,
        help="Whether the ids of stored messages that duplicate detection remembers outlive a restart.")
    message_expiry_scan_period_ms: int = meaningless(
        DELAY_OR_OFF,
        30_000,
        "Nothing is scanned: a message expires at its time.",
        is_foreign=True,
        help="How often Artemis searches queues for expired messages.",
    )
    consumer_timeout_ms: int = setting(DELAY_OR_OFF, 1_800_000, LIVE,
        help="How long a delivery may stay unacknowledged before its channel is closed; -1 for ever.")
    address_queue_scan_period_ms: int = setting(DELAY_OR_OFF, 30_000, LIVE, is_foreign=True,
        help="How often unused auto-created queues are looked for; -1 never.")
    global_max_size: int = setting(BYTES_OR_OFF, -1, LIVE, is_foreign=True,
        help="Octets of messages in all addresses together at which every address is full; -1 is no limit.")
    global_max_messages: int = setting(in_range(-1, LONG_MAX), -1, LIVE, is_foreign=True,
        help="Messages in all addresses together at which every address is full; -1 is no limit.")
    internal_naming_prefix: str = meaningless(
        TEXT,
        "$.artemis.internal.",
        "There are no internal queues whose names it could begin.",
        is_foreign=True,
        help="Prefix of the names that Artemis gives to internal queues.",
    )


@dataclass(init=False, repr=False, eq=False)
class JournalKeys:
    """[journal]."""

    fsync: str = setting(one_of("commit", "interval", "never"), "commit", RESTART,
        help="When records are forced to disk: with each `commit`, at an `interval`, or `never`.")
    fsync_interval_ms: int = setting(DELAY, 200, RESTART, help="Time between two fsyncs when `fsync` is `interval`.")
    scope: str = setting(one_of("durable", "all"), "durable", RESTART,
        help="What is recorded: what must survive a restart (`durable`), or everything that happens (`all`).")
    segment_size: int = setting(BYTES, 64 * 1024**2, RESTART, help="Size of one segment file.")
    segment_age_ms: int = setting(DELAY, 3_600_000, RESTART,
        help="Age at which a segment is sealed even if it is not full.")
    reserve: int = of_node(BYTES, 40 * 1024**2, RESTART,
        help="Disk space that a file reserves, so that acknowledgements and deletes work on a full disk; 0 is none.")
    retain_ms: int | None = setting(DELAY, None, RESTART,
        help="How long segments that the broker no longer needs are kept for the data pipeline.")
    reader_age_ms: int = setting(DELAY, 90 * 86_400_000, RESTART,
        help="Age of segments that only one reader of the pipeline needs, at which it is dropped; 0 is no limit.")
    reader_size: int = setting(BYTES, 0, RESTART,
        help="Octets of segments that only one reader of the pipeline needs, at which it is dropped; 0 is no limit.")


@dataclass(init=False, repr=False, eq=False)
class LimitKeys:
    """[limits]."""

    memory: int = setting(BYTES, 256 * 1024**2, RESTART,
        help="Memory for ready messages of all queues together; more than that stays on disk.")
    unsent_per_connection: int = setting(BYTES, 1024**2, RESTART,
        help="Octets waiting for a slow client, above which its messages stay in their queues.")
    handshake_timeout_ms: int = setting(PERIOD, 10_000, AT_CONNECTION,
        help="Time a client has from connecting to being logged in, TLS included.")
    first_octet_timeout_ms: int = setting(PERIOD, 3_000, AT_CONNECTION,
        help="Time a client has to send its first octet.")
    half_open_connections: int = setting(in_range(1, 2**31), 256, AT_CONNECTION,
        help="Connections that may be open without being logged in.")
    connections: int = setting(COUNT_INT, 0, AT_CONNECTION, help="Connections that may be open at once; 0 is no limit.")
    channels_per_connection: int | None = setting(in_range(1, 65535), None, AT_CONNECTION,
        help="Lower limit than `channel-max` on the channels of a connection.")
    queues: int = setting(COUNT_INT, 0, AT_CREATION,
        help="Queues that clients may declare, in all virtual hosts; 0 is no limit.")
    bindings: int = setting(COUNT_INT, 0, AT_BINDING,
        help="Bindings that clients may make, in all virtual hosts; 0 is no limit.")
    consumers_per_channel: int = setting(COUNT_INT, 0, AT_CONNECTION, help="Consumers on one channel; 0 is no limit.")
    unacked_per_channel: int = setting(COUNT_INT, 1_000_000, LIVE,
        help="Unacknowledged deliveries on one channel, whatever its prefetch; 0 is no limit.")
    ready_per_busy_queue: int = setting(COUNT_INT, 500, LIVE,
        help="Ready messages in a queue with consumers above which publishers wait; 0 is no limit.")
    headers_conditions: int = setting(COUNT_INT, 100_000, AT_BINDING,
        help="Conditions in all bindings of one headers exchange.")
    topic_states: int = setting(COUNT_INT, 200_000, AT_BINDING,
        help="Pattern states of one topic exchange that a single key may have to visit, see "
        "[hostile-peers.md](hostile-peers.md).")
    message_size: int = setting(BYTES, None, AT_CONNECTION, by_profile="message_size_max",
        help="Largest message that is accepted.")
    incomplete_per_connection: int = setting(BYTES, 256 * 1024**2, AT_CONNECTION,
        help="Octets of messages whose bodies have not fully arrived, on one connection.")
    transaction_size: int = setting(BYTES, 128 * 1024**2, LIVE, help="Octets published in one transaction.")
    log_lines_per_second: int = setting(COUNT_INT, 100, LIVE,
        help="Log lines per second that peers may cause; more are counted instead of written.")
    table_depth: int = meaningless(in_range(1, 64), 64,
        "The bound is always 64; a lower one would refuse valid tables.",
        help="How deep field tables may be nested.")
    history_events: int = setting(COUNT_INT, 100_000, RESTART,
        help="Events that a test broker's history keeps; a server has none.")


@dataclass(init=False, repr=False, eq=False)
class ManagementKeys:
    """[management]."""

    enabled: bool = of_node(BOOLEAN, True, RESTART,
        help="Whether the console is served, where the extra `leveret[console]` is installed.")
    listen: tuple[str, ...] = of_node(TEXTS, ("127.0.0.1:15672",), RESTART,
        help="Addresses of the HTTP API: HOST:PORT, https://HOST:PORT (with `[tls]`), unix:PATH; or `off`.")
    metrics: str = of_node(TEXT, "127.0.0.1:15692", RESTART,
        help="Address where metrics and health are served without a login, written as above, or `off`.")
    metrics_open: bool = setting(BOOLEAN, False, LIVE,
        help="Whether metrics show names of objects to anybody outside loopback, not only to monitoring users.")
    plain_outside: bool = setting(BOOLEAN, False, RESTART,
        help="Whether HTTP may be served without TLS outside loopback, where others can read passwords.")
    node: str = of_node(TEXT, "rabbit@localhost", LIVE,
        help="Name of a node without `[cluster]` for tools; they find it by any name that begins with `rabbit@`.")
    path_prefix: str = setting(TEXT, "", LIVE, help="Prefix of all paths, for a proxy in front.")
    hosts: tuple[str, ...] = of_node(TEXTS, (), LIVE,
        help="Host names under which the console may be reached, beside addresses and localhost.")
    cors_origins: tuple[str, ...] = setting(TEXTS, (), LIVE,
        help="Origins of other sites whose pages may use the API; `*`: the pages of all sites may read.")
    trusted_proxies: tuple[Network, ...] = setting(NETWORKS, (), LIVE,
        help="Networks of proxies whose X-Forwarded-For names the client.")
    max_body: int = setting(Kind(size_between(1)), 20_000_000, LIVE, help="Largest body of a request.")
    max_connections: int = setting(in_range(1, 2**31), 100, LIVE, help="Connections at once.")


@dataclass(init=False, repr=False, eq=False)
class TlsKeys:
    """[tls]."""

    certificate: str | None = of_node(TEXT, None, AT_CONNECTION,
        help="PEM file with the server's certificate, then those of intermediate authorities.")
    key: str | None = of_node(TEXT, None, AT_CONNECTION,
        help="PEM file with the private key, without a passphrase; unset: in the certificate's file.")
    client_ca: str | None = of_node(TEXT, None, AT_CONNECTION,
        help="PEM file with the authorities whose client certificates are trusted.")
    verify: str = setting(one_of("none", "optional", "required"), "none", AT_CONNECTION,
        help="Whether clients show a certificate: `none`, `optional` or `required`.")
    minimum: str = setting(one_of("1.2", "1.3"), "1.2", AT_CONNECTION, help="Lowest TLS version: `1.2` or `1.3`.")
    ssl_cert_login_from: str = setting(
        one_of("common-name", "distinguished-name", "subject-alternative-name"),
        "common-name",
        AT_CONNECTION,
        help="Where EXTERNAL finds the user: `common-name`, `distinguished-name` or `subject-alternative-name`.",
    )
    ssl_cert_login_san_type: str = setting(one_of("dns", "email", "ip", "uri"), "dns", AT_CONNECTION,
        help="Type of the alternative name: `dns`, `email`, `ip` or `uri`.")
    ssl_cert_login_san_index: int = setting(in_range(0, 1000), 0, AT_CONNECTION,
        help="Which alternative name of that type, counted from 0.")
# fmt: on


#: Table of a file -> the class of its rows.
TABLES: dict[str, type] = {
    "broker": BrokerKeys,
    "journal": JournalKeys,
    "limits": LimitKeys,
    "system-usage": UsageKeys,
    "flow": Flow,
    "management": ManagementKeys,
    "tls": TlsKeys,
    "cluster": ClusterKeys,
    "cluster.tls": ClusterTlsKeys,
    "cluster.etcd-tls": EtcdTlsKeys,
}

#: Table -> key -> its row.
KEYS: dict[str, dict[str, Key]] = {
    table: {columns["key"]: Key(**columns) for columns in columns_of(rows)} for table, rows in TABLES.items()
}

#: Table -> attribute -> key.
KEY_OF: dict[str, dict[str, str]] = {
    table: {one.attribute: key for key, one in rows.items()} for table, rows in KEYS.items()
}
