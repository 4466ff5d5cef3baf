"""Programs that once showed a difference. What RabbitMQ said to them is recorded, so this needs no RabbitMQ;
where there is one, the recordings are compared with it, too."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rawclient import Client

from leveret.interop.differential import regressions
from leveret.interop.differential.comparison import Known, known_differences
from leveret.interop.differential.side import Side

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_leveret_says_what_was_recorded(file: Path, subject_url: str) -> None:
    """What RabbitMQ said; where a difference is meant, what stands in the file as ours."""
    regression = regressions.load(file)
    assert regression.check(Side(subject_url)) is None, regression.title


@pytest.mark.peer
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_rabbitmq_still_says_what_was_recorded(file: Path, reference_url: str) -> None:
    """The recordings are true."""
    assert regressions.load(file).check_reference(Side(reference_url)) is None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_files_read_back_as_they_were_written(file: Path, tmp_path: Path) -> None:
    """Saving a loaded file changes nothing, so a recording made anew shows what changed."""
    regressions.save(tmp_path / "again.json", regressions.load(file))
    assert (tmp_path / "again.json").read_text() == file.read_text()


@pytest.mark.parametrize("known", known_differences(), ids=lambda known: known.name)
def test_each_known_difference_has_its_reason_and_its_program(known: Known) -> None:
    """A line of the deviations, and a recorded program that shows it."""
    deviations = (ROOT / "docs/DEVIATIONS.md").read_text().splitlines()
    assert len([line for line in deviations if line.startswith(f"| {known.deviation} |")]) == 1
    regression = regressions.load(Path(__file__).parent / "regressions" / f"{known.name}.json")
    assert regression.subject is not None
    met = [
        known.explains(operation, expected, got)
        for operation, expected, got in zip(regression.operations, regression.expected, regression.subject)
        if expected != got
    ]
    assert met == [True]


def _client(url: str) -> Client:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    return Client.open(parts.hostname, parts.port, vhost=parts.path[1:])


def test_the_tag_of_a_long_stays_where_a_header_goes(subject_url: str) -> None:
    """BCC is taken out, and the octets of the other headers stay."""
    client = _client(subject_url)
    client.call("queue.declare", queue="long", exclusive=True)
    client.publish("", "long", headers={"n": ("L", 1), "BCC": ("A", [("S", "long")])})
    assert client.take("long", no_ack=True).content.headers == {"n": ("L", 1)}  # type: ignore[union-attr]
    client.close()


def test_the_headers_of_the_dead_stay_in_their_order(subject_url: str) -> None:
    """What dead-lettering adds stands behind them."""
    client = _client(subject_url)
    client.call("queue.declare", queue="dead", exclusive=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.call("queue.declare", queue="alive", exclusive=True, arguments=arguments)
    client.publish("", "alive", headers={"z": "1", "a": "2"})
    client.send("basic.reject", delivery_tag=client.take("alive")["delivery_tag"], requeue=False)
    client.wait_for_ready("dead", 1)
    assert list(client.take("dead", no_ack=True).content.headers)[:2] == ["z", "a"]  # type: ignore[union-attr]
    client.close()


def test_cancels_come_in_the_order_of_tags(subject_url: str) -> None:
    """A queue goes; the comparison sorts them, because tags may be generated."""
    client = _client(subject_url)
    client.call("queue.declare", queue="gone", exclusive=True)
    for tag in ("b", "a"):
        client.call("basic.consume", queue="gone", consumer_tag=tag)
    client.call("queue.delete", queue="gone")
    assert [client.expect("basic.cancel")["consumer_tag"] for _ in range(2)] == ["a", "b"]
    client.close()


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_a_stream_is_deleted_on_its_conditions(flag: str, subject_url: str) -> None:
    """RabbitMQ deletes it whatever the flags say, and its consumers with it."""
    client = _client(subject_url)
    client.call("queue.declare", queue="stream", durable=True, arguments={"x-queue-type": "stream"})
    client.publish("", "stream", b"kept")
    client.call("basic.qos", prefetch_count=1)
    client.call("basic.consume", queue="stream")
    client.send("queue.delete", channel=1, queue="stream", **{flag: True})
    assert client.expect("channel.close")["reply_code"] == 406
    client.send("channel.close-ok")
    client.call("channel.open")
    assert client.call("queue.delete", queue="stream")["message_count"] == 1
    client.close()
