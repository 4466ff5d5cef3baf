"""Record and replay: what clients sent, met again at virtual speed."""

from pathlib import Path

import pika
import pytest
from consumers import channel_of, consuming, reject

from leveret.testing import ClockIsReal, RecordingError, Replay, RunningBroker, start_broker

RETRIES = {
    "x-redelivery-delay": 600_000,
    "x-max-delivery-attempts": 3,
    "x-dead-letter-address": "failed",
}


def life(broker: RunningBroker) -> list[tuple[str, str, float]]:
    """Everything that happened to messages, with its time."""
    kinds = ("published", "enqueued", "delivered", "scheduled", "due", "acked", "requeued", "dead_lettered", "deleted")
    return [(event.kind, event.subject, event.at) for event in broker.history(*kinds)]


def record_a_session(broker: RunningBroker, path: str) -> None:
    """A publisher, a failing consumer, half an hour; server-named queues and consumer tags among it."""
    with broker.record(path):
        with channel_of(broker.url) as channel:
            channel.queue_declare("failed")
            own = channel.queue_declare("", exclusive=True).method.queue
            with consuming(broker.url, "jobs", reject, arguments=RETRIES):
                channel.basic_publish("", "jobs", b"x" * 300_000)  # in several reads
                channel.basic_publish("", own, b"to myself")
                broker.clock.advance(minutes=30)
                assert channel.basic_get(own, auto_ack=True)[2] == b"to myself"
        broker.settled(ignore=["failed"])


def test_a_replay_is_the_session_again(virtual_broker: RunningBroker, tmp_path: Path) -> None:
    """The same things happen to the same messages at the same times."""
    broker = virtual_broker
    file = str(tmp_path / "session.jsonl")
    record_a_session(broker, file)
    first = life(broker)
    assert ("delivered", "jobs", 600.0) in first
    broker.reset()
    report = broker.replay(file).run()
    assert report.connections == 2
    assert report.octets > 300_000
    assert report.duration == 1800
    assert report.refusals == ()
    assert life(broker) == first
    broker.assert_queue("failed", ready=["x" * 300_000])


def test_a_session_of_real_time_is_replayed_in_none(broker: RunningBroker, tmp_path: Path) -> None:
    """A TTL that really passed passes again, at the recorded distance and by the virtual clock."""
    file = str(tmp_path / "session.jsonl")
    with broker.record(file), channel_of(broker.url) as channel:
        channel.queue_declare("short")
        channel.basic_publish("", "short", b"x", pika.BasicProperties(expiration="50"))
        broker.assert_queue("short", ready=0, within=20)
        channel.basic_publish("", "short", b"y")
    with start_broker(clock="virtual") as other:
        report = other.replay(file).run()
        assert report.refusals == ()
        assert report.duration == other.clock.elapsed >= 0.05
        published, expired = other.published()[0], other.history("expired")[0]
        assert (published.body, round(expired.at - published.at, 3)) == (b"x", 0.05)
        other.assert_queue("short", ready=["y"])


def test_one_recording_runs_at_a_time(broker: RunningBroker, tmp_path: Path) -> None:
    """A second one would end the first, which nobody would see; its file is not touched."""
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    second.write_text("kept")
    with broker.record(str(first)):
        with pytest.raises(RuntimeError, match="another recording is running"):
            broker.record(str(second))
        with channel_of(broker.url) as channel:
            channel.queue_declare("q")
    assert '"event": "received"' in first.read_text() and second.read_text() == "kept"
    broker.record(str(second)).stop()


def test_no_login_is_recorded(virtual_broker: RunningBroker, tmp_path: Path) -> None:
    """Neither name and password nor anything of the handshake."""
    file = tmp_path / "session.jsonl"
    record_a_session(virtual_broker, str(file))
    text = file.read_text()
    assert '"event": "opened"' in text
    assert "PLAIN" not in text and "Z3Vlc3Q" not in text  # base64 of "guest"


def test_another_virtual_host_and_other_settings(virtual_broker: RunningBroker, tmp_path: Path) -> None:
    """What if: the same session with an address-setting on top, in a virtual host of its own."""
    file = str(tmp_path / "session.jsonl")
    with virtual_broker.record(file), channel_of(virtual_broker.url) as channel:
        channel.queue_declare("ring")
        for number in range(10):
            channel.basic_publish("", "ring", str(number))
    with start_broker(
        clock="virtual", config={"address-setting": [{"match": "ring", "default-ring-size": 3}]}
    ) as other:
        other.replay(file).run(vhost="what if")
        other.assert_queue("ring", ready=["7", "8", "9"], vhost="what if")


def test_replays_need_virtual_time(broker: RunningBroker, tmp_path: Path) -> None:
    """A real clock can't be hurried."""
    file = str(tmp_path / "session.jsonl")
    broker.record(file).stop()
    with pytest.raises(ClockIsReal):
        broker.replay(file).run()


@pytest.mark.parametrize(
    "text, message",
    [
        ("nonsense\n", ":1: is not JSON"),
        ("{}\n", ":1: expected"),
        ('{"leveret-recording": 1}\n{"at": 0}\n', ":2: is not an event"),
        (
            '{"leveret-recording": 1}\n{"at": 0, "connection": 1, "event": "closed"}\n',
            ":2: connection 1 was not opened",
        ),
    ],
)
def test_what_is_no_recording_is_refused(broker: RunningBroker, tmp_path: Path, text: str, message: str) -> None:
    """With the line and the reason."""
    file = tmp_path / "session.jsonl"
    file.write_text(text)
    with pytest.raises(RecordingError, match=message):
        Replay(broker, str(file))
