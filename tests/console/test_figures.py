"""Figures that must be true: which queues grow, and of what dead letters died. Source: management page 15."""

import json
from collections.abc import Iterator

import pika
import pytest
from api_client import ApiClient

from leveret.__main__ import main
from leveret.console.sampler import Sampler
from leveret.testing import RunningBroker, start_broker
from leveret.testing.harness import Harness


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """On virtual time."""
    with start_broker(management=True, clock="virtual") as running:
        yield running


def grown(arrivals: list[int], seconds: int = 10) -> int | None:
    """The growth of a queue to which so many messages came, `seconds` apart."""
    harness = Harness()
    queue, sampler = harness.queue(), Sampler(lambda: harness.broker)
    for count in arrivals:
        harness.publish(*["x"] * count)
        for _ in range(seconds):
            for _ in sampler.sample_all():
                pass
            harness.advance(1000)
    return sampler.growth(queue)


def test_growth() -> None:
    """It takes a minute, in both halves; a burst is none, nor is a queue that has stopped to grow."""
    assert grown([10] * 9) == 50  # 90 now; 40 a minute ago
    assert grown([10] * 4) is None
    assert grown([500, *[0] * 8]) == 0
    assert grown([0, 10, 10, 10, 10, 10, 10, 0, 0, 0, 0]) == 0
    assert grown([]) == 0


def test_what_goes_up_and_down_does_not_grow() -> None:
    """Bursts that are consumed each time, however much larger each is than the one before."""
    harness = Harness()
    queue, sampler = harness.queue(), Sampler(lambda: harness.broker)

    def pass_seconds(count: int) -> None:
        for _ in range(count):
            for _ in sampler.sample_all():
                pass
            assert not sampler.growth(queue)
            harness.advance(1000)

    for burst in range(10, 100, 10):
        harness.publish(*["x"] * burst)
        pass_seconds(5)
        harness.take(burst)
        pass_seconds(5)


def test_queues_that_are_meant_to_grow(
    broker: RunningBroker, api: ApiClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Streams, rings and dead-letter queues are left out, and what grows by less than the floor; so says `ctl`."""
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
    kinds = {
        "plain": {},
        "ring": {"x-ring-size": 5},
        "stream": {"x-queue-type": "stream"},
        "letters": {},
        "dies": letters,
    }
    for name, arguments in kinds.items():
        api.ask("PUT", f"queues/%2F/{name}", {"durable": True, "arguments": arguments})
    growth: dict[str, int | None] = {"plain": 60, "ring": 70, "stream": 70, "letters": 70, "dies": 59}
    monkeypatch.setattr(Sampler, "growth", lambda self, queue: growth[queue.name])
    assert api.get("leveret/growing") == {
        "total": 1,
        "items": [{"vhost": "/", "name": "plain", "messages": 0, "growth": 60}],
        "unknown": 0,
    }
    assert main(["ctl", "--json", "--url", broker.url, "growing"]) == 0
    assert json.loads(capsys.readouterr().out) == api.get("leveret/growing")
    growth["plain"] = None
    assert api.get("leveret/growing") == {"total": 0, "items": [], "unknown": 1}
    for name in kinds:
        api.ask("DELETE", f"queues/%2F/{name}")


def test_all_dead_letters_are_counted(broker: RunningBroker, api: ApiClient) -> None:
    """The first ones at once, all of them if that is asked for."""
    api.ask("PUT", "queues/%2F/gone", {})
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "gone", "x-message-ttl": 0}
    api.ask("PUT", "queues/%2F/going", {"arguments": arguments})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for _ in range(5_150):
            channel.basic_publish("", "going", b"x")
        channel.queue_declare("going", passive=True)
        broker.clock.advance(seconds=1)
    (first,) = [one for one in api.get("leveret/dead-letters")["items"] if one["queue"] == "gone"]
    (whole,) = [one for one in api.get("leveret/dead-letters?all=true")["items"] if one["queue"] == "gone"]
    assert first["looked_at"] < 5_150 == first["messages"]
    assert whole["looked_at"] == 5_150
    assert [(one["cause"], one["origin"], one["count"]) for one in whole["causes"]] == [("expired", "going", 5_150)]
