"""Views of connections and channels. Fields that only make sense in Erlang are constants that tools expect.

Source: management page 4.
"""

from dataclasses import asdict
from typing import Any

from ...engine import Broker, Client, Session, json_of_table
from ..steps import Steps, map_in_steps
from .clients import channel_name, given_name, host_of, node_of, peer_of
from .consumers import consumer_view
from .queues import NO_GARBAGE_COLLECTION

_TLS = (
    "ssl_protocol",
    "ssl_cipher",
    "ssl_hash",
    "ssl_key_exchange",
    "peer_cert_subject",
    "peer_cert_issuer",
    "peer_cert_validity",
)


def state_of(client: Client, broker: Broker) -> str:
    """The state of a connection in RabbitMQ's words."""
    if client.is_blocked:
        return "blocked"
    return "running" if broker.flow.raised is None else "blocking"


def connection_view(client: Client, broker: Broker, node: str, *, is_alone: bool = False) -> dict[str, Any]:
    """A connection, without rates. `is_alone`: it is the whole answer, not a row of a list."""
    host, port = host_of(client)
    peer_host, peer_port = peer_of(client)
    connection_info = client.connection_info
    properties = json_of_table(client.properties)
    view: dict[str, Any] = {
        "auth_mechanism": connection_info.mechanism,
        "channel_max": connection_info.channel_max,
        "channels": len(client.sessions),
        "client_properties": properties,
        "connected_at": client.since_ms,
        "frame_max": connection_info.frame_max,
        "garbage_collection": NO_GARBAGE_COLLECTION,
        "host": host,
        "name": client.name,
        "node": node_of(client, node),
        "peer_host": peer_host,
        "peer_port": peer_port,
        "port": port,
        "protocol": connection_info.protocol,
        "recv_cnt": connection_info.reads,
        "recv_oct": connection_info.octets_in,
        "reductions": 0,
        "send_cnt": connection_info.writes,
        "send_oct": connection_info.octets_out,
        "send_pend": client.unsent,
        "ssl": bool(connection_info.tls_protocol),
        "state": state_of(client, broker),
        "timeout": connection_info.heartbeat_s,
        "type": "network",
        "user": client.user.name,
        "user_who_performed_action": client.user.name,
        "vhost": client.vhost.name,
    }
    view |= dict.fromkeys(_TLS, "" if is_alone else None)
    if connection_info.tls_protocol:
        view |= {
            "ssl_protocol": connection_info.tls_protocol,
            "ssl_cipher": connection_info.tls_cipher,
            **cipher_parts(connection_info.tls_cipher),
        }
    if (certificate := connection_info.peer_certificate) is not None:
        view |= {f"peer_cert_{name}": value for name, value in asdict(certificate).items()}
    return {**view, **given_name(client)}


def cipher_parts(cipher: str) -> dict[str, str]:
    """Key exchange and hash from OpenSSL's name of a cipher, like ECDHE-RSA-AES256-GCM-SHA384.

    Names of TLS 1.3, like TLS_AES_256_GCM_SHA384, have no key exchange. A name without a hash means SHA-256.
    """
    exchange = "any" if cipher.startswith("TLS_") else "_".join(cipher.lower().split("-")[:2])
    last = cipher.lower().replace("_", "-").rpartition("-")[2]
    return {"ssl_key_exchange": exchange, "ssl_hash": last if last.startswith("sha") else "sha256"}


def plain_connection_view(client: Client, node: str) -> dict[str, Any]:
    return {"name": client.name, "node": node_of(client, node), "user": client.user.name, "vhost": client.vhost.name}


def channel_view(session: Session, node: str) -> dict[str, Any]:
    """A channel in a list, without rates."""
    client = session.client
    assert isinstance(client, Client)
    host, port = peer_of(client)
    transaction, confirms = session.transaction, session.confirms
    return {
        "acks_uncommitted": 0 if transaction is None else len(transaction.acked),
        "confirm": confirms is not None,
        "connection_details": {"name": client.name, "peer_host": host, "peer_port": port, **given_name(client)},
        "consumer_count": len(session.consumers),
        "garbage_collection": NO_GARBAGE_COLLECTION,
        "global_prefetch_count": session.prefetch_total,
        "messages_unacknowledged": len(session.unacked),
        "messages_uncommitted": 0 if transaction is None else transaction.count,
        "messages_unconfirmed": 0 if confirms is None else confirms.published - confirms.confirmed,
        "name": channel_name(session),
        "node": node_of(client, node),
        "number": session.number,
        "pending_raft_commands": 0,
        "prefetch_count": session.prefetch,
        "reductions": 0,
        "state": "running" if session.flowing else "flow",
        "transactional": transaction is not None,
        "user": client.user.name,
        "user_who_performed_action": client.user.name,
        "vhost": client.vhost.name,
    }


def channel_details(session: Session, node: str) -> Steps:
    """The steps to the fields that a channel has only outside lists."""
    views = yield from map_in_steps(lambda consumer: consumer_view(consumer, node), list(session.consumers.values()))
    return {"consumer_details": views, "deliveries": [], "publishes": []}
