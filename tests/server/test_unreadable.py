"""What only the disk has, and cannot be read any more: the broker says which file, and stops."""

import subprocess
import sys
from pathlib import Path

import pika
import pytest
from broker_process import leveret_serve
from pika.exceptions import AMQPConnectionError

COUNT = 12_000


def test_a_damaged_segment_under_a_deep_queue(tmp_path: Path) -> None:
    """Everything before the damage arrives in order; then one clear sentence and exit 1; `journal verify` agrees."""
    config = '[limits]\nmemory = "1MiB"\n[journal]\nsegment-size = "4MiB"\n'
    data = tmp_path / "data"
    with leveret_serve(tmp_path, data=data, config=config) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
        channel.queue_declare("q", durable=True)
        for number in range(COUNT):
            channel.basic_publish("", "q", b"%06d" % number + bytes(1000), pika.BasicProperties(delivery_mode=2))
        assert channel.queue_declare("q", passive=True).method.message_count == COUNT
        segment = sorted(data.glob("*.log"))[1]
        with segment.open("r+b") as file:
            file.seek(2_000_000)
            file.write(b"\xff" * 64)
        got = 0
        with pytest.raises(AMQPConnectionError):
            for _, _, body in channel.consume("q", auto_ack=True):
                assert body[:6] == b"%06d" % got
                got += 1
        assert broker.process.wait(60) == 1
        assert 3_000 < got < COUNT
        log = broker.log()
        assert f"segment {segment.name}, offset " in log and "`leveret journal verify`" in log
        assert "Traceback" not in log
    verify = [sys.executable, "-m", "leveret", "journal", "verify", str(data)]
    told = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert told.returncode == 2 and f"segment {segment.name}, offset " in told.stdout + told.stderr
