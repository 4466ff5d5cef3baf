"""Peers that are slow, silent or too many: bounded, refused, and nobody else is disturbed."""

import os
import select
import selectors
import socket
import struct
from pathlib import Path

import pika
import pytest
from broker_process import leveret_serve
from pamqp import commands, frame, header

HELLO = b"AMQP\x00\x00\x09\x01"


def connect(port: int) -> socket.socket:
    """A socket that was sent nothing on yet."""
    client = socket.create_connection(("127.0.0.1", port))
    client.settimeout(60)
    return client


def log_in(port: int, heartbeat: int = 0) -> socket.socket:
    """A raw connection with channel 1 open; everything the broker answered is read."""
    client = connect(port)
    client.sendall(HELLO)
    read_frame(client)
    client.sendall(frame.marshal(commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0))
    read_frame(client)
    client.sendall(
        frame.marshal(commands.Connection.TuneOk(2047, 131072, heartbeat), 0)
        + frame.marshal(commands.Connection.Open(), 0)
        + frame.marshal(commands.Channel.Open(), 1)
    )
    read_frame(client)
    read_frame(client)
    return client


def read_frame(client: socket.socket) -> bytes:
    """One whole frame."""
    head = read_exactly(client, 7)
    return head + read_exactly(client, struct.unpack(">BHL", head)[2] + 1)


def read_exactly(client: socket.socket, size: int) -> bytes:
    """That many octets."""
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        assert part, "the broker hung up"
        data += part
    return data


def is_over(client: socket.socket) -> bool:
    """Whether the broker hung up, reading whatever it said before."""
    try:
        while client.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return True


def test_a_consumer_that_does_not_read_never_grows_the_broker(tmp_path: Path) -> None:
    """About 1 MiB unsent for it, the rest stays in the queue; other consumers go on."""
    with leveret_serve(tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("flood")
        body = bytes(10_000)
        deaf = log_in(broker.port)
        deaf.sendall(frame.marshal(commands.Basic.Consume(queue="flood", no_ack=True), 1))
        read_frame(deaf)
        for _ in range(2_000):  # 20 MB
            channel.basic_publish("", "flood", body)
        ready = channel.queue_declare("flood", passive=True).method.message_count
        # What the kernel holds for the deaf socket (both ends, up to about 10 MB) plus 1 MiB of ours have left.
        assert ready * len(body) > 5_000_000
        before = broker.rss_kib()
        for _ in range(20):
            connection.process_data_events()
            channel.queue_declare("other")
        assert broker.rss_kib() - before < 2_000
        # The deaf one starts to read: everything comes.
        total = 0
        while total < 2_000 * len(body):
            total += len(deaf.recv(1 << 20))
        assert channel.queue_declare("flood", passive=True).method.message_count == 0
        deaf.close()
        connection.close()


def test_requests_whose_answers_are_not_read_stop_being_read(tmp_path: Path) -> None:
    """A peer that asks and asks without reading grows nothing but its own socket buffers."""
    with leveret_serve(tmp_path) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("big")
        channel.basic_publish("", "big", bytes(100_000))
        rude = log_in(broker.port)
        rude.setblocking(False)
        ask = frame.marshal(commands.Basic.Get(queue="big"), 1) + frame.marshal(commands.Basic.Recover(True), 1)
        selector = selectors.DefaultSelector()
        selector.register(rude, selectors.EVENT_WRITE)
        before = broker.rss_kib()
        sent = 0
        while selector.select(timeout=0.5) and sent < 50_000_000:
            sent += rude.send(ask * 100)
        assert broker.rss_kib() - before < 64 * 1024
        assert channel.queue_declare("other").method.queue == "other"
        rude.close()
        connection.close()


def test_handshakes_that_do_not_go_on_are_ended(tmp_path: Path) -> None:
    """Nothing, half a header, a header and no more: closed after the handshake timeout."""
    with leveret_serve(tmp_path, config="[limits]\nhandshake-timeout = '300ms'\n") as broker:
        silent, half, stuck = (connect(broker.port) for _ in range(3))
        half.sendall(HELLO[:5])
        stuck.sendall(HELLO)
        for client in (silent, half, stuck):
            assert is_over(client)
        assert broker.log().count("handshake timed out") == 3


def test_too_many_connections_that_are_not_logged_in(tmp_path: Path) -> None:
    """One more than the limit: the oldest that has said nothing makes room; those that are logged in do not count."""
    with leveret_serve(tmp_path, config="[limits]\nhalf-open-connections = 5\n") as broker:
        logged_in = [log_in(broker.port) for _ in range(4)]
        waiting = [connect(broker.port) for _ in range(5)]
        again = connect(broker.port)
        again.sendall(HELLO)
        assert again.recv(1) == b"\x01"
        assert is_over(waiting.pop(0))
        assert broker.log().count("are not logged in") == 1
        for client in (*logged_in, *waiting, again):
            client.close()


def test_nobody_is_locked_out_by_silence(tmp_path: Path) -> None:
    """300 silent connections from the same address, opened again as soon as they end: whoever talks can log in."""
    with leveret_serve(tmp_path) as broker:
        silent = [connect(broker.port) for _ in range(300)]
        for _ in range(50):
            log_in(broker.port).close()
            for ended in select.select(silent, (), (), 0)[0]:
                ended.close()
                silent[silent.index(ended)] = connect(broker.port)
        for client in silent:
            client.close()


def test_who_says_nothing_is_hung_up_on_soon(tmp_path: Path) -> None:
    """Not one octet within `first-octet-timeout`; whoever began has the whole handshake timeout."""
    limits = "[limits]\nfirst-octet-timeout = '300ms'\nhandshake-timeout = '1h'\n"
    with leveret_serve(tmp_path, config=limits) as broker:
        begun, silent = connect(broker.port), connect(broker.port)
        begun.sendall(HELLO[:5])
        assert is_over(silent)
        assert broker.log().count("dropped: nothing came within 300 ms") == 1
        begun.sendall(HELLO[5:])
        assert begun.recv(1) == b"\x01"
        begun.close()


def test_the_number_of_connections_can_be_limited(tmp_path: Path) -> None:
    """`connections` counts all of them."""
    with leveret_serve(tmp_path, config="[limits]\nconnections = 2\n") as broker:
        first, second = log_in(broker.port), log_in(broker.port)
        assert is_over(connect(broker.port))
        first.close()
        second.close()


@pytest.mark.real_time
def test_idle_connections_cost_no_cpu(tmp_path: Path) -> None:
    """Hundreds of idle connections: no ticks of the process clock while nothing happens."""
    with leveret_serve(tmp_path, config="[limits]\nhalf-open-connections = 1000\n") as broker:
        clients = [log_in(broker.port, heartbeat=60) for _ in range(300)]
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        for _ in range(15):  # what the logins left to do may take a while on a busy machine
            before = cpu_ticks(broker.pid)
            connection.process_data_events(time_limit=2)
            ticks = cpu_ticks(broker.pid) - before
            if ticks <= 2:
                break
        assert ticks <= 2  # of 200
        for client in clients:
            client.close()
        connection.close()


def cpu_ticks(pid: int) -> int:
    """User and system time, in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_message_larger_than_the_limit_is_refused_and_not_kept(tmp_path: Path) -> None:
    """406 after the whole content arrived, with RabbitMQ's text; its octets were dropped as they came."""
    with leveret_serve(tmp_path, config="[limits]\nmessage-size = 1000\n") as broker:
        client = log_in(broker.port)
        body = bytes(1001)
        client.sendall(
            frame.marshal(commands.Basic.Publish(routing_key="q"), 1)
            + frame.marshal(header.ContentHeader(0, len(body), commands.Basic.Properties()), 1)
            + b"\x03\x00\x01"
            + struct.pack(">L", len(body))
            + body
            + b"\xce"
        )
        _, _, close = frame.unmarshal(read_frame(client))
        assert close.reply_code == 406
        assert close.reply_text == "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000"
        client.close()


def test_file_descriptors_come_back(tmp_path: Path) -> None:
    """Connections that end in every way leave no descriptor behind."""
    with leveret_serve(tmp_path) as broker:
        control = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = control.channel()
        before = len(os.listdir(f"/proc/{broker.pid}/fd"))
        for round_ in range(30):
            client = log_in(broker.port) if round_ % 2 else connect(broker.port)
            if round_ % 3 == 0:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        for _ in range(100):
            channel.queue_declare("ping")
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) == before
        control.close()
