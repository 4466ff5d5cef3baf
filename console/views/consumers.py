"""The view of a consumer. Source: management page 4."""

from typing import Any

from ...engine import Client, Consumer, Queue, Session, json_of_table
from .clients import channel_name, given_name, node_of, peer_of


def active_consumer(queue: Queue) -> Consumer | None:
    """The consumer that gets the messages of a queue with `x-single-active-consumer`; None: there is none."""
    return next(iter(queue.consumer_list.served or queue.consumers), None)


def consumer_view(consumer: Consumer, node: str) -> dict[str, Any]:
    queue, session = consumer.queue, consumer.session
    assert isinstance(session, Session)
    client = session.client
    assert isinstance(client, Client)
    host, port = peer_of(client)
    is_single = queue.rules.single_active_consumer
    is_active = not is_single or consumer is active_consumer(queue)
    return {
        "arguments": json_of_table(consumer.arguments),
        "ack_required": not consumer.no_ack,
        "active": is_active,
        "activity_status": ("single_active" if is_active else "waiting") if is_single else "up",
        "channel_details": {
            "connection_name": client.name,
            "name": channel_name(session),
            "node": node_of(client, node),
            "number": session.number,
            "peer_host": host,
            "peer_port": port,
            "user": client.user.name,
            **given_name(client),
        },
        "consumer_tag": consumer.tag,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "queue": {"name": queue.name, "vhost": queue.vhost_name},
    }
