"""A broker that is killed knows the duplicate ids of what it had confirmed; a client over a real socket sends again."""

from pathlib import Path

import pika
import pytest
from broker_process import leveret_serve


@pytest.mark.parametrize("keeps_ids", [True, False])
def test_what_was_confirmed_before_a_kill_is_sent_again(keeps_ids: bool, tmp_path: Path) -> None:
    """Dropped and confirmed; with `persist-id-cache = false` it comes a second time."""
    config = f"[broker]\npersist-id-cache = {str(keeps_ids).lower()}\n"
    counts = []
    for _ in range(2):
        with leveret_serve(tmp_path, data=tmp_path / "data", config=config) as broker:
            connection = pika.BlockingConnection(pika.URLParameters(broker.url))
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            for id_ in ("one", "two"):
                properties = pika.BasicProperties(delivery_mode=2, headers={"_AMQ_DUPL_ID": id_})
                channel.basic_publish("", "q", b"x", properties, mandatory=True)  # raises when it is refused
            counts.append(channel.queue_declare("q", passive=True).method.message_count)
            broker.process.kill()
            broker.process.wait()
    assert counts == [2, 2 if keeps_ids else 4]
