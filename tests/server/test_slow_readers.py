"""Peers that read large answers slowly, or not at all: heartbeats, and the octets that are counted. Real sockets."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from collections.abc import Iterator

import pytest
from configured_broker import load
from rawclient import Client
from socket_broker import SocketBroker

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
#: More than a socket takes by itself, and more answers than a connection may have unsent.
BODY = bytes(16 * 1024 * 1024)
INTERVAL_S = 10


class Reader:
    """A client that asks for a large message and does not read the answer by itself."""

    def __init__(self, broker: SocketBroker) -> None:
        self.broker = broker
        self.port = int(broker.url.rpartition(":")[2].partition("/")[0])
        self.client = Client.open("127.0.0.1", self.port, tune={"heartbeat": INTERVAL_S})
        self.socket: socket.socket = self.client._socket
        self.client.call("queue.declare", queue="q")
        self.client.publish("", "q", BODY)
        self.client.wait_for_ready("q", 1)
        self.client.send("basic.get", queue="q", no_ack=True)
        self.received = len(self.socket.recv(1, socket.MSG_PEEK)) - 1  # the answer has begun

    def beat(self) -> None:
        """A heartbeat that has arrived at the broker's system."""
        self.client.send_octets(HEARTBEAT)
        while struct.unpack("i", fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4)))[0]:
            pass

    def read(self, size: int) -> None:
        """So much of the answer."""
        end = self.received + size
        while self.received < end:
            data = self.socket.recv(end - self.received)
            assert data, "closed"
            self.received += len(data)

    def pass_half_intervals(self, count: int) -> None:
        self.broker.advance_ms(count * INTERVAL_S * 500)

    @property
    def is_connected(self) -> bool:
        return bool(self.broker.do(lambda: len(self.broker.broker.connections)))


@pytest.fixture
def reader() -> Iterator[Reader]:
    with SocketBroker(load("")) as broker:
        reader = Reader(broker)
        yield reader
        reader.socket.close()


def test_a_peer_that_sends_heartbeats_stays_while_it_does_not_read(reader: Reader) -> None:
    """The broker does not read it meanwhile; when it is silent, too, it is given up."""
    for _ in range(6):
        reader.beat()
        reader.pass_half_intervals(2)
        assert reader.is_connected
    reader.pass_half_intervals(3)
    assert reader.is_connected
    reader.pass_half_intervals(3)
    reader.broker.wait_for_clients(0)


def test_a_peer_that_reads_slowly_stays_without_heartbeats(reader: Reader) -> None:
    """Each octet that it takes shows that it lives. The whole answer arrives, and is counted."""
    for _ in range(5):
        reader.read(1024 * 1024)
        reader.pass_half_intervals(2)
        assert reader.is_connected
    reader.read(len(BODY) - reader.received)
    (sent,) = reader.broker.do(lambda: [one.connection_info.octets_out for one in reader.broker.broker.connections])
    assert len(BODY) < sent < len(BODY) + 10_000
