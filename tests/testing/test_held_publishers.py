"""A test broker holds publishes as a real one does, also while it does not read the publisher. Real sockets."""

import pytest
from rawclient import Client

from leveret.amqp_frontend.edge import endpoint
from leveret.testing import start_broker

CONFIG = """
[flow]
hold-bytes = "64KiB"
hold-spool = 0

[[address-setting]]
match = "q"
memory-limit = "1KiB"
cursor = "vm"
"""


def test_a_publisher_that_is_not_read_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker looks whether it is still there; all that it sent arrives when there is room."""
    looks: list[bool] = []
    look = endpoint.Endpoint._is_disconnected

    def counted(self: endpoint.Endpoint) -> bool:
        looks.append(True)
        looks[-1] = look(self)
        return looks[-1]

    monkeypatch.setattr(endpoint, "CHECK_S", 0.01)
    monkeypatch.setattr(endpoint.Endpoint, "_is_disconnected", counted)
    with start_broker(config=CONFIG) as broker:
        client, other = Client.open("127.0.0.1", broker.port), Client.open("127.0.0.1", broker.port)
        client.call("queue.declare", queue="q")
        client.publish("", "q", bytes(2048))
        other.wait_for_ready("q", 1)
        for number in range(20):  # two in a row that are not alike: each is held by itself
            client.publish("", "q", bytes(20_000), mandatory=bool(number % 2))
        while len(looks) < 3:
            assert broker.ask(lambda: len(broker.runtime.broker.connections)) == 2
        other.call("basic.consume", queue="q", no_ack=True)
        assert [len(delivery.body) for delivery in other.deliveries(21)] == [2048, *[20_000] * 20]
        assert not any(looks)
        for one in (client, other):
            one.close()
