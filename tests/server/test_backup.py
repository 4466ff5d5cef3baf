"""A backup of a running broker, as docs/operations.md has it: segments copied in the order of their names."""

import shutil
import threading
from pathlib import Path

import pika
from broker_process import leveret_serve

SMALL = '[journal]\nsegment-size = "1MiB"\n'
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def copied(source: Path, target: Path) -> int:
    """As `rsync -a` does it: a list first, then file by file in order. Returns how many files were gone meanwhile."""
    target.mkdir(exist_ok=True)
    gone = 0
    for path in sorted(path for path in source.iterdir() if not path.is_dir()):
        try:
            shutil.copy2(path, target / path.name)
        except FileNotFoundError:
            gone += 1
    return gone


def test_a_copy_of_a_running_broker_is_whole(tmp_path: Path) -> None:
    """Everything that was confirmed before the copy began, and is not acknowledged, is in the copy."""
    stopping, half = threading.Event(), threading.Event()
    with leveret_serve(tmp_path, config=SMALL, data=tmp_path / "data") as broker:
        url = broker.url

        def publish() -> None:
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                number = 0
                while not stopping.is_set():
                    number += 1
                    channel.basic_publish("", "passing", b"x" * 50_000, PERSISTENT)
                    channel.basic_get("passing", auto_ack=True)
                    if number == 60:
                        half.set()

        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("kept", durable=True)
            channel.queue_declare("passing", durable=True)
            for number in range(100):
                channel.basic_publish("", "kept", str(number).encode(), PERSISTENT)
        publisher = threading.Thread(target=publish)
        publisher.start()
        assert half.wait(60)
        try:
            while copied(tmp_path / "data", tmp_path / "copy"):
                shutil.rmtree(tmp_path / "copy")
        finally:
            stopping.set()
            publisher.join()
        assert broker.stop() == 0
    (tmp_path / "again").mkdir()
    with (
        leveret_serve(tmp_path / "again", data=tmp_path / "copy") as broker,
        pika.BlockingConnection(pika.URLParameters(broker.url)) as connection,
    ):
        channel = connection.channel()
        found = [channel.basic_get("kept", auto_ack=True)[2] for _ in range(101)]
    assert found == [*(str(number).encode() for number in range(100)), None]
