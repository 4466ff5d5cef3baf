"""What older brokers left on disk, opened with this one. Where they come from: older/README.md."""

import tarfile
from pathlib import Path

import pika
import pytest

from leveret.journal.recovery.check import verify
from leveret.testing import start_broker

OLDER = Path(__file__).parent / "older"


@pytest.fixture(params=sorted(path.name for path in OLDER.glob("*.tar.gz")))
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The directory as that broker left it."""
    with tarfile.open(OLDER / request.param) as archive:
        archive.extractall(tmp_path / "data")
    return tmp_path / "data"


def test_nothing_is_lost(data: Path) -> None:
    """Queues, bindings, messages in their order with all that they say; what was acknowledged or deleted is gone."""
    with start_broker(data=data) as broker:
        assert sorted(queue.name for queue in broker.queues()) == ["failed", "last", "orders", "ranked", "timed"]
        orders = broker.queue("orders")
        assert [message.body for message in orders.ready] == [b"order %d " % n + b"x" * n for n in range(12, 60)]
        newest = orders.ready[-1].properties
        assert (newest.message_id, newest.content_type, newest.delivery_mode) == ("m59", "text/plain", 2)
        assert newest.headers == {"number": 59, "text": "hare ü", "list": (1, True, None), "table": {"a": "b"}}
        assert [message.body for message in broker.queue("ranked").ready] == [
            b"rank %d" % n for n in (2, 5, 1, 4, 0, 3)
        ]
        assert [message.body for message in broker.queue("timed").ready] == [b"timed"]
        assert [message.body.split()[1] for message in broker.queue("failed").ready] == [b"10", b"11"]
        assert broker.queue("failed").ready[0].properties.headers["x-death"][0]["queue"] == "orders"
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.exchange_declare("shop", "topic", durable=True)
            arguments = {"x-dead-letter-exchange": "dead", "x-max-length": 1000}
            channel.queue_declare("orders", durable=True, arguments=arguments)  # the same: not refused
            assert channel.basic_get("orders")[0].redelivered


def test_it_goes_on_from_there(data: Path) -> None:
    """What it writes behind the older records outlives the next restart; the journal is sound."""
    with start_broker(data=data) as broker, pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("shop", "order.new", b"of today", pika.BasicProperties(delivery_mode=2))
        for _ in range(48):
            channel.basic_ack(channel.basic_get("orders")[0].delivery_tag)
        channel.queue_declare("today", durable=True)
    with start_broker(data=data) as broker:
        assert [message.body for message in broker.queue("orders").ready] == [b"of today"]
        assert broker.queue("today").ready == ()
    report = verify(str(data))
    assert (report.faults, report.gaps, report.torn_segment) == ([], [], "")
