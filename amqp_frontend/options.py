"""Options of the AMQP frontend that an operator sets. Units are in the names."""

import ssl
from ipaddress import IPv4Network, IPv6Network

from ..settings.slotted import slotted

Network = IPv4Network | IPv6Network


@slotted
class FrontendOptions:
    """Options of all connections: the same object until the configuration is read again, so it is compared by identity.

    Defaults: interfaces page, "Configuration keys". connection.start sends `product` and `version`. Clients
    depend on the product (kombu decides by it whether to set `global` in basic.qos), so the default names the broker
    whose behaviour Leveret follows; `platform` and `information` name Leveret.
    """

    heartbeat_s: int = 60
    channel_max: int = 2047
    frame_max: int = 131072
    mechanisms: tuple[str, ...] = ("PLAIN", "AMQPLAIN")
    anonymous_user: str = "guest"
    handshake_timeout_ms: int = 10_000
    first_octet_timeout_ms: int = 3_000
    refused_login_delay_ms: int = 3_000
    half_open_max: int = 256
    connections_max: int = 0  # 0 = unlimited
    descriptor_max: int | None = None  # the largest file descriptor of a connection's socket; None: no limit
    consumers_per_channel_max: int = 0  # 0 = unlimited
    message_size_max: int = 128 * 1024 * 1024
    incomplete_max: int = 256 * 1024 * 1024  # octets of incomplete bodies of one connection
    honours_flow: bool = True  # channel.flow(active=false) stops deliveries; False: it is refused
    product: str = "RabbitMQ"
    version: str = "3.10.8"
    cluster_name: str = "leveret@localhost"
    node: str = ""  # name of this node of a cluster
    tls: ssl.SSLContext | None = None  # for the next connections of TLS listeners
    ssl_cert_login_from: str = "common-name"
    ssl_cert_login_san_type: str = "dns"
    ssl_cert_login_san_index: int = 0
    proxy_protocol_from: tuple[Network, ...] = ()
