"""`kill -9` while a deep queue is moved: each message is in one place or the other, in order; the job is gone."""

import json
from pathlib import Path

import pika
import pytest
from api_client import ApiClient
from broker_process import leveret_serve

COUNT = 1500
DEEP = '[[address-setting]]\nmatch = "deep"\nmax-size-messages = 50\naddress-full-policy = "PAGE"\n'


def _api(lines: list[str]) -> ApiClient:
    return ApiClient(next(line for line in lines if "http://" in line).split()[-1])


def _numbers(api: ApiClient, queue: str) -> list[int]:
    found, after = [], 0
    while after is not None:
        page = api.ask("POST", f"leveret/queues/%2F/{queue}/browse", {"count": 500, "after": after}).json
        found += [json.loads(one["payload"])["n"] for one in page["items"]]
        after = page["next"]
    return found


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_killed_while_it_moves(tmp_path: Path, kind: str) -> None:
    """As many as had been moved when the kill came; none lost, none twice."""
    data = tmp_path / "data"
    with leveret_serve(tmp_path, config=DEEP, data=data, management="127.0.0.1:0") as process:
        api = _api(process.lines)
        for name in ("deep", "other"):
            body = {"durable": True, "arguments": {"x-queue-type": kind}}
            assert api.ask("PUT", f"queues/%2F/{name}", body).status == 201
        with pika.BlockingConnection(pika.URLParameters(process.url)) as connection:
            channel = connection.channel()
            channel.tx_select()
            for number in range(COUNT):
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", "deep", b'{"n": %d, "even": %d}' % (number, number % 2 == 0), properties)
            channel.tx_commit()
        body = {"to": {"queue": "other"}, "filter": "/even = 1", "rate": 1000}
        job = api.ask("POST", "leveret/queues/%2F/deep/move", body).json["job"]
        while (found := api.get(f"leveret/jobs/{job}"))["done"] < 100:
            assert not found["error"]
        process.process.kill()
    with leveret_serve(tmp_path, config=DEEP, data=data, management="127.0.0.1:0") as process:
        api = _api(process.lines)
        moved, left = _numbers(api, "other"), _numbers(api, "deep")
        assert moved == list(range(0, 2 * len(moved), 2))  # what the last turns moved may not be written yet
        assert left == sorted(set(range(COUNT)) - set(moved))
        assert api.get("leveret/jobs") == []
