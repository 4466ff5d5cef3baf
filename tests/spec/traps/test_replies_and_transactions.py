"""Direct reply-to and transactions: where naive brokers differ from RabbitMQ."""

from __future__ import annotations

from spec_broker import SpecBroker, expect_channel_close
from traps import Q, filled, trap


@trap(67)
def test_direct_reply_to(broker: SpecBroker) -> None:
    """reply_to is written out, a passive declare of the address shows that somebody is there, and it needs no_ack."""
    client = broker.open()
    client.call("queue.declare", queue=Q)
    client.call("basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True)
    client.publish("", Q, b"request", reply_to="amq.rabbitmq.reply-to")
    client.wait_for_ready(Q, 1)
    request = client.take(Q, no_ack=True)
    assert request.content is not None
    address = request.content.properties["reply_to"]
    assert address.startswith("amq.rabbitmq.reply-to.")
    client.call("channel.open", channel=2)
    assert client.count(address, channel=2) == (0, 1)  # on the consumer's own channel RabbitMQ 3.10 crashes
    client.send("basic.consume", channel=2, queue="amq.rabbitmq.reply-to")
    text = "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    expect_channel_close(client, 406, text, (60, 20), channel=2)


@trap(68)
def test_declaring_the_reply_queue(broker: SpecBroker) -> None:
    """amq.rabbitmq.reply-to can be declared although `amq.` is reserved."""
    client = broker.open()
    client.call("queue.declare", queue="amq.rabbitmq.reply-to")


@trap(72)
def test_tx_unknown_tag_at_once(broker: SpecBroker) -> None:
    """Inside a transaction an unknown tag is refused at once, a tag acked twice too."""
    client = filled(broker, 1)
    client.call("tx.select")
    client.take(Q)
    client.send("basic.ack", delivery_tag=1)
    client.send("basic.ack", delivery_tag=1)
    expect_channel_close(client, 406, "PRECONDITION_FAILED - unknown delivery tag 1", (60, 80))
    client.call("channel.open")
    assert client.bodies(Q) == [b"0"]  # the channel's end rolled the first ack back


@trap(72)
def test_tx_returns_during_the_commit(broker: SpecBroker) -> None:
    """A mandatory message is returned while committing, before commit-ok."""
    client = broker.open()
    client.call("tx.select")
    client.publish("", "p.nowhere", b"m", mandatory=True)
    assert client.collect() == []
    client.send("tx.commit")
    assert client.expect("basic.return").body == b"m"
    client.expect("tx.commit-ok")


@trap(72)
def test_tx_rollback_rearms_the_tags(broker: SpecBroker) -> None:
    """rollback drops the publishes, and makes acked tags outstanding again without a redelivery."""
    client = filled(broker, 1)
    client.call("tx.select")
    client.call("basic.consume", queue=Q)
    client.deliveries(1)
    client.send("basic.ack", delivery_tag=1)
    client.publish("", Q, b"dropped")
    client.call("tx.rollback")
    assert client.collect(Q) == []
    client.send("basic.ack", delivery_tag=1)
    client.call("tx.commit")
    client.call("channel.close")
    client.call("channel.open")
    assert client.get(Q) is None
