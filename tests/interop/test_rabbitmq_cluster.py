"""Three nodes of RabbitMQ that benchmarks compare with are one cluster."""

import pika
import pytest

from leveret.interop.brokers.peers import WITHOUT_RABBITMQ, find_rabbitmq, rabbitmq_cluster


@pytest.mark.peer
@pytest.mark.skipif(find_rabbitmq() is None, reason=WITHOUT_RABBITMQ)
def test_a_queue_is_known_to_all_nodes() -> None:
    """Declared on one node, published to through another, and got from the third."""
    with rabbitmq_cluster() as peers:
        channels = []
        for peer in peers:
            channel = pika.BlockingConnection(pika.URLParameters(peer.url)).channel()
            channel.confirm_delivery()
            channels.append(channel)
        channels[0].queue_declare("q", durable=True, arguments={"x-queue-type": "quorum"})
        channels[1].basic_publish("", "q", b"body", mandatory=True)
        assert channels[2].basic_get("q", auto_ack=True)[2] == b"body"
