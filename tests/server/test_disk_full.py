"""A disk that is really full: who is refused, who waits, who goes on; nothing is lost."""

import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess, leveret_serve
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError

from leveret.cli.control_client import request

PERSISTENT = pika.BasicProperties(delivery_mode=2)
BODY = bytes(20_000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB, nearly all of it taken by a file `ballast`: more than sockets buffer."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", path], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    try:
        (path / "ballast").write_bytes(bytes(60_000_000))
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def test_publishers_wait_consumers_go_on(tmp_path: Path, disk: Path) -> None:
    """Without confirms: blocked until there is room; with them: nack; durable declarations are answered later."""
    config = '[journal]\nsegment-size = "1MiB"\n'
    with leveret_serve(tmp_path, data=disk / "data", config=config) as broker:
        publisher, other = (pika.BlockingConnection(pika.URLParameters(broker.url)) for _ in range(2))
        told: list[str] = []
        publisher.add_on_connection_blocked_callback(lambda _, frame: told.append(frame.method.reason))
        publisher.add_on_connection_unblocked_callback(lambda _, frame: told.append("unblocked"))
        channel = publisher.channel()
        channel.queue_declare("q", durable=True)
        watching = other.channel()
        published = 0
        while not told:  # one at a time: a client that cannot write does not hear that it is blocked
            channel.basic_publish("", "q", BODY, PERSISTENT)
            published += 1
            while not told and watching.queue_declare("q", passive=True).method.message_count < published:
                publisher.process_data_events(time_limit=0)
        assert told == ["low on disk"]

        confirming = other.channel()
        confirming.confirm_delivery()
        with pytest.raises(NackError):
            confirming.basic_publish("", "q", BODY, PERSISTENT)
        assert request(broker.url, "status", {})["trouble"][0].startswith("the disk is full since 20")
        confirming.queue_declare("passing")
        confirming.basic_publish("", "passing", b"transient")
        method, _, body = other.channel().basic_get("q", auto_ack=True)
        assert method is not None and body == BODY

        declared = threading.Event()

        def declare() -> None:
            connection = pika.BlockingConnection(pika.URLParameters(broker.url))
            connection.channel().queue_declare("late", durable=True)
            declared.set()
            connection.close()

        late = threading.Thread(target=declare)
        late.start()
        assert other.channel().queue_declare("q", passive=True).method.message_count < published
        assert not declared.is_set()

        assert broker.log().count("refused until there is room") == 1
        (disk / "ballast").unlink()
        while told[-1] != "unblocked":
            publisher.process_data_events(time_limit=1)
        channel.queue_declare("q", passive=True)  # all that it published was read
        late.join(60)
        assert declared.is_set()
        confirming.basic_publish("", "q", b"room again", PERSISTENT)
        broker.process.kill()
        broker.process.wait()

    with leveret_serve(tmp_path, data=disk / "data", config=config) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        assert channel.queue_declare("q", passive=True).method.message_count == published  # one got, one more
        channel.queue_declare("late", passive=True)


@pytest.mark.parametrize("how", ["acks", "acks after a restart", "purge", "delete"])
def test_consumers_make_room(tmp_path: Path, disk: Path, how: str) -> None:
    """A disk filled by messages, and nobody takes anything else away: drained to empty, publishers go on by themselves.

    What was drained does not come back, also where the broker was killed and started on the full disk.
    """
    config = '[journal]\nsegment-size = "1MiB"\nreserve = "1MiB"\n'
    with contextlib.ExitStack() as stack:

        def start() -> tuple[BrokerProcess, BlockingChannel]:
            directory = Path(tempfile.mkdtemp(dir=tmp_path))
            broker = stack.enter_context(leveret_serve(directory, data=disk / "data", config=config))
            channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
            channel.queue_declare("q", durable=True)
            channel.confirm_delivery()
            return broker, channel

        broker, channel = start()
        published = fill(channel)
        assert published > 100
        if how == "acks after a restart":
            broker.process.kill()
            broker.process.wait()
            broker, channel = start()
        if how == "purge":
            channel.queue_purge("q")
        elif how == "delete":
            channel.queue_delete("q")
            channel.queue_declare("q", durable=True)
        else:
            assert sum(1 for _ in drain(channel)) >= published
        broker.wait_for_log("the journal has room again")
        again = 0
        while again <= published // 2:  # drained segments go one by one, so that it may be full for a moment once more
            again += fill(channel)
        assert sum(1 for _ in drain(channel)) >= again
        while not is_taken(channel, b"last"):
            pass  # the suite's time limit ends it
        broker.process.kill()
        broker.process.wait()
        broker, channel = start()
        assert list(drain(channel)) == [b"last"]


def fill(channel: BlockingChannel) -> int:
    """Publish until the broker says no: how many were confirmed."""
    count = 0
    while is_taken(channel, BODY):
        count += 1
    return count


def is_taken(channel: BlockingChannel, body: bytes) -> bool:
    """Publish: whether the broker says yes."""
    try:
        channel.basic_publish("", "q", body, PERSISTENT)
    except NackError:
        return False
    return True


def drain(channel: BlockingChannel) -> Iterator[bytes]:
    """Bodies, each acknowledged, until there are none."""
    while True:
        method, _, body = channel.basic_get("q")
        if method is None:
            return
        channel.basic_ack(method.delivery_tag)
        yield body
