"""A read whose answers pile up is handled to its end, also where the end of the turn has sent them. Real sockets."""

import sys

import pytest
from configured_broker import load
from rawclient import Client
from socket_broker import SocketBroker

from leveret.amqp_frontend.peer import output

REPLIES_MAX = 2_000
BODY = b"b" * REPLIES_MAX


def test_answers_that_are_sent_with_deliveries_do_not_stop_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one read: what is delivered to the client itself, and gets, each of whose answers is too much for a turn."""
    before = output.REPLIES_MAX
    for module in [one for name, one in sys.modules.items() if name.startswith("leveret.")]:
        if vars(module).get("REPLIES_MAX") == before:
            monkeypatch.setattr(module, "REPLIES_MAX", REPLIES_MAX)
    with SocketBroker(load("")) as broker:
        client = Client.open("127.0.0.1", int(broker.url.rpartition(":")[2].partition("/")[0]))
        for queue in ("got", "consumed"):
            client.call("queue.declare", queue=queue)
        for _ in range(3):
            client.publish("", "got", BODY)
        client.wait_for_ready("got", 3)
        client.call("basic.consume", queue="consumed", consumer_tag="c", no_ack=True)
        sent, send = [], client.send_octets
        monkeypatch.setattr(client, "send_octets", sent.append)
        client.publish("", "consumed", b"delivered")
        for _ in range(3):
            client.send("basic.get", queue="got", no_ack=True)
        send(b"".join(sent))
        client.expect("basic.deliver")
        for ready in (2, 1, 0):
            assert client.expect("basic.get-ok")["message_count"] == ready
        monkeypatch.undo()
        client.close()
