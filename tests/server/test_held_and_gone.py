"""A client that goes away while its publishes wait for room is let go, and they with it: nobody hears of them any more.

Real sockets. Source: queues page E.5 (STALLED: free dead clients).
"""

import gc
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from configured_broker import load
from rawclient import Client
from socket_broker import SocketBroker

from leveret.amqp_frontend.edge import endpoint
from leveret.amqp_frontend.flow.parking import Parking

CONFIG = """
[flow]
hold-bytes = "64KiB"
hold-spool = 0

[[address-setting]]
match = "q"
memory-limit = "1KiB"
cursor = "vm"
"""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[SocketBroker]:
    """Looks often at peers that it does not read."""
    monkeypatch.setattr(endpoint, "CHECK_S", 0.01)
    with SocketBroker(load(CONFIG)) as running:
        yield running


def closes(client: Client) -> None:
    """The client's process ends."""
    client.abort()


def resets(client: Client) -> None:
    """The client's machine has forgotten the connection."""
    client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.abort()


def is_held(*, is_full: bool) -> bool:
    """Whether a connection's publishes are held, and whether it is therefore not read."""
    return any(isinstance(one, Parking) and one.channels and one.is_full is is_full for one in gc.get_objects())


@pytest.mark.parametrize("goes", [closes, resets])
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "stalled"])
def test_a_client_that_is_gone_does_not_wait_for_room(
    broker: SocketBroker, goes: Callable[[Client], None], is_read: bool
) -> None:
    """Also where so much is held that it is not read, and what it sent last is still in the socket."""
    port = int(broker.url.rpartition(":")[2].partition("/")[0])
    client, other = Client.open("127.0.0.1", port), Client.open("127.0.0.1", port)
    client.call("queue.declare", queue="q")
    client.publish("", "q", bytes(2048))
    other.wait_for_ready("q", 1)
    for number in range(1 if is_read else 20):  # two in a row that are not alike: each is held by itself
        client.publish("", "q", bytes(20_000), mandatory=bool(number % 2))
    while not broker.do(lambda: is_held(is_full=not is_read)):
        pass
    goes(client)
    broker.wait_for_clients(1)
    assert broker.do(broker.broker.flow.blocked) == []
    assert [len(body) for body in other.bodies("q")] == [2048]
    assert broker.do(lambda: broker.broker.context.counters.dropped) >= 1
    other.close()


def test_a_client_that_is_still_there_is_waited_for(broker: SocketBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the broker looks: all that it sent arrives when there is room."""
    looks: list[bool] = []
    look = endpoint.Endpoint._is_disconnected

    def counted(self: endpoint.Endpoint) -> bool:
        looks.append(look(self))
        return looks[-1]

    monkeypatch.setattr(endpoint.Endpoint, "_is_disconnected", counted)
    port = int(broker.url.rpartition(":")[2].partition("/")[0])
    client, other = Client.open("127.0.0.1", port), Client.open("127.0.0.1", port)
    client.call("queue.declare", queue="q")
    client.publish("", "q", bytes(2048))
    other.wait_for_ready("q", 1)
    for number in range(20):
        client.publish("", "q", bytes(20_000), mandatory=bool(number % 2))
    while broker.do(lambda: len(broker.broker.connections)) == 2 and len(looks) < 3:
        pass
    other.call("basic.consume", queue="q", no_ack=True)
    assert [len(delivery.body) for delivery in other.deliveries(21)] == [2048, *[20_000] * 20]
    assert not any(looks)
    for one in (client, other):
        one.close()


class CountingClient(Client):
    """A client that counts what it sends."""

    sent = 0

    def send_octets(self, octets: bytes) -> None:
        self.sent += len(octets)
        super().send_octets(octets)


def test_what_a_client_sends_while_its_publishes_are_held_is_counted(broker: SocketBroker) -> None:
    """It is read, and handled at once if it is on another channel."""
    port = int(broker.url.rpartition(":")[2].partition("/")[0])
    client = CountingClient("127.0.0.1", port)
    client.handshake()
    client.call("channel.open")
    client.call("queue.declare", queue="q")
    client.publish("", "q", bytes(2048))
    client.wait_for_ready("q", 1)
    client.publish("", "q", b"held")
    while not broker.do(lambda: is_held(is_full=False)):
        pass
    client.expect("connection.blocked", channel=0)
    client.call("channel.open", channel=2)
    client.call("queue.declare", channel=2, queue="other")
    (info,) = broker.do(lambda: [one.connection_info for one in broker.broker.connections])
    assert info.octets_in == client.sent
    client.close()
