"""A broker process with few descriptors, and a client that wants all of them; and a data directory that goes away."""

import json
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess, leveret_serve
from node_forge import leveret
from pika.exceptions import AMQPConnectionError, AMQPError, NackError
from rawclient import Client, Eof

pytestmark = pytest.mark.skipif(os.name != "posix", reason="descriptors are limited on POSIX")

PERSISTENT = pika.BasicProperties(delivery_mode=2)
#: A segment takes some 60 messages, memory some 1000.
SMALL = '[limits]\nmemory = "1MiB"\n[journal]\nsegment-size = "64KiB"\n'


def take_all(broker: BrokerProcess) -> list[Client | socket.socket]:
    """Log in until nobody is let in any more, then hold on to what is left with connections that say nothing."""
    held: list[Client | socket.socket] = []
    try:
        while True:
            held.append(Client.open("127.0.0.1", broker.port))
    except (OSError, AssertionError, Eof):
        pass
    held += [socket.create_connection(("127.0.0.1", broker.port), timeout=60) for _ in range(20)]
    return held


def test_one_client_takes_all_descriptors(tmp_path: Path) -> None:
    """Others' confirms come over dozens of new segments, a deep queue is drained in order; the log has one line."""
    count = 1000
    with leveret_serve(tmp_path, data=tmp_path / "data", config=SMALL, descriptors=80) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        held = take_all(broker)
        assert 20 < len(held) < 100
        for number in range(count):
            channel.basic_publish("", "q", b"%06d" % number + bytes(3000), PERSISTENT)
        assert channel.queue_declare("q", passive=True).method.message_count == count
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) <= 80
        for number, (method, _, body) in enumerate(channel.consume("q"), 1):
            assert body[:6] == b"%06d" % (number - 1)
            channel.basic_ack(method.delivery_tag)
            if number == count:
                break
        log = broker.log()
        assert log.count("no more connections are accepted: 60 descriptors are in use") == 1
        assert "Traceback" not in log and log.count(" ERROR ") == 1 and " WARNING leveret.journal" not in log
        for one in held:
            one.abort() if isinstance(one, Client) else one.close()
        while True:
            try:
                Client.open("127.0.0.1", broker.port).close()
                break
            except (OSError, AssertionError, Eof):
                pass
        broker.wait_for_log("connections are accepted again")
        status = json.loads(leveret("ctl", "--url", broker.url, "--json", "status").stdout)
        assert status["descriptors"] == {"limit": 80, "for-connections": 60}
        assert broker.stop() == 0
        assert "Traceback" not in broker.log()
    with leveret_serve(tmp_path, data=tmp_path / "data", config=SMALL) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        assert channel.queue_declare("q", passive=True).method.message_count == 0


def begin(port: int) -> socket.socket:
    """A protocol header, and no more."""
    client = socket.create_connection(("127.0.0.1", port), timeout=60)
    client.sendall(b"AMQP\0\0\x09\x01")
    return client


def log_in_at_last(port: int) -> Client:
    """Again and again until it is let in, which nothing but room ends."""
    while True:
        try:
            return Client.open("127.0.0.1", port)
        except (OSError, AssertionError, Eof):
            pass


#: Nobody goes because of the time it takes.
PATIENT = "[limits]\nhandshake-timeout = '1h'\nfirst-octet-timeout = '1h'\n"


def test_half_logins_do_not_take_all_descriptors(tmp_path: Path) -> None:
    """400 that send a protocol header: they have half of what connections have, and their oldest makes room."""
    with leveret_serve(tmp_path, config=PATIENT, descriptors=128) as broker:
        held = [begin(broker.port) for _ in range(400)]
        clients = [log_in_at_last(broker.port) for _ in range(30)]
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) < 96
        for client in clients:
            assert client.call("channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
        for one in held:
            one.close()
        assert "Traceback" not in broker.log()


@pytest.mark.parametrize("limit", ["descriptors", "connections"])
def test_half_logins_make_room_when_something_is_short(tmp_path: Path, limit: str) -> None:
    """The last places are theirs: each login gets one of them, until none is left; those that are in stay in."""
    config, descriptors = PATIENT + "half-open-connections = 1000\n", 80
    if limit == "connections":
        config, descriptors = config + "connections = 40\n", 500
    with leveret_serve(tmp_path, config=config, descriptors=descriptors) as broker:
        clients = [Client.open("127.0.0.1", broker.port) for _ in range(25)]
        held = [begin(broker.port) for _ in range(100)]
        clients += [log_in_at_last(broker.port) for _ in range(12)]
        for client in clients:
            assert client.call("channel.close", reply_code=200, reply_text="", class_id=0, method_id=0)
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) <= descriptors
        for one in held:
            one.close()
        assert "Traceback" not in broker.log()


def publish_until_refused(broker: BrokerProcess) -> int:
    """One by one; returns how many were confirmed before the broker was gone, or said no."""
    channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
    channel.confirm_delivery()
    confirmed = 0
    try:
        while True:
            channel.basic_publish("", "q", bytes(1000), PERSISTENT)
            confirmed += 1
    except (AMQPError, NackError):
        return confirmed


def assert_stopped(broker: BrokerProcess, data: Path) -> None:
    """By itself: exit 1, one sentence for the operator, no traceback; nobody was cut off without a word."""
    assert broker.process.wait(60) == 1
    log = broker.log()
    (line,) = (line for line in log.splitlines() if line.startswith("leveret: "))
    assert line.startswith(f"leveret: data directory {data}: ") and line.endswith("; the broker stops")
    assert "Traceback" not in log and "CRITICAL" not in log and "closing the journal" not in log


def test_a_data_directory_that_is_deleted(tmp_path: Path) -> None:
    """Not one publish is confirmed after it; those who are connected hear connection.close."""
    data = tmp_path / "data"
    with leveret_serve(tmp_path, data=data) as broker:
        witness = pika.BlockingConnection(pika.URLParameters(broker.url))
        witness.channel().queue_declare("q", durable=True)
        shutil.rmtree(data)
        assert publish_until_refused(broker) == 0
        with pytest.raises(AMQPConnectionError) as closed:
            witness.process_data_events(time_limit=60)
        assert closed.value.args[0] == 320
        assert_stopped(broker, data)


def signal_until_over(broker: BrokerProcess) -> int:
    """SIGTERM over and over, as impatient supervisors do. Returns the exit code."""
    while broker.process.poll() is None:
        broker.process.send_signal(signal.SIGTERM)
    return broker.process.wait()


def test_signals_while_it_stops_change_nothing(tmp_path: Path) -> None:
    """Whether a signal or the loss of the data directory began it: it ends in order, and the exit code says why."""
    for is_lost in (True, False):
        data = tmp_path / f"data-{is_lost}"
        with leveret_serve(tmp_path, data=data) as broker:
            mute = Client.open("127.0.0.1", broker.port)  # it does not answer connection.close: the stop takes a while
            mute.call("queue.declare", queue="q", durable=True)
            mute.call("confirm.select")
            if is_lost:
                shutil.rmtree(data)
                mute.publish("", "q", b"lost", delivery_mode=2)
            else:
                broker.process.send_signal(signal.SIGTERM)
            while mute.read().name != "connection.close":
                pass
            assert signal_until_over(broker) == is_lost
            if is_lost:
                assert_stopped(broker, data)
            mute.abort()


def test_a_data_directory_that_is_moved_away(tmp_path: Path) -> None:
    """Everything that was confirmed is where it went."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    with leveret_serve(tmp_path, data=data, config=SMALL) as broker:
        pika.BlockingConnection(pika.URLParameters(broker.url)).channel().queue_declare("q", durable=True)
        data.rename(elsewhere)
        confirmed = publish_until_refused(broker)
        assert_stopped(broker, data)
    with leveret_serve(tmp_path, data=elsewhere) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        assert channel.queue_declare("q", passive=True).method.message_count >= confirmed


def test_a_data_directory_that_becomes_read_only(tmp_path: Path) -> None:
    """The next segment cannot be made; what was confirmed before is there when it can be written to again."""
    if os.geteuid():
        pytest.skip("mounting a file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", disk], capture_output=True, check=False).returncode:
        pytest.skip("root may not mount a file system here")
    data = disk / "data"
    data.mkdir()
    try:
        with leveret_serve(tmp_path, data=data, config=SMALL) as broker:
            pika.BlockingConnection(pika.URLParameters(broker.url)).channel().queue_declare("q", durable=True)
            subprocess.run(["mount", "--bind", data, data], check=True)
            subprocess.run(["mount", "-o", "remount,ro,bind", data], check=True)
            confirmed = publish_until_refused(broker)
            assert_stopped(broker, data)
        subprocess.run(["umount", "--lazy", data], check=True)
        with leveret_serve(tmp_path, data=data) as broker:
            channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
            assert channel.queue_declare("q", passive=True).method.message_count >= confirmed
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
