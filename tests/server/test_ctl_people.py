"""What `leveret ctl` prints for people: times, columns that fit, the place of a message. Source: interfaces page."""

import time
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from leveret.__main__ import main
from leveret.cli import ctl_command
from leveret.cli.control_client import request
from leveret.cli.ctl_command import as_text
from leveret.testing import start_broker


@pytest.mark.parametrize(
    "value, text",
    [(0, "0 ms"), (999, "999 ms"), (61_000, "1 min 1 s"), (7_200_000, "2 h"), (90_061_000, "1 d 1 h"), (-1, "-1")],
)
def test_times(value: int, text: str) -> None:
    """A duration of milliseconds as people write it; the column is called without the unit."""
    assert as_text([{"queue": "q", "waiting_ms": value}], "x").splitlines() == [
        "queue  waiting",
        f"q      {text}",
    ]


def test_a_moment() -> None:
    """Milliseconds since 1970 are a date and a time of day."""
    shown = as_text([{"since_ms": 1_800_000_000_000}], "x").splitlines()[1]
    assert shown == time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1_800_000_000))


@pytest.mark.parametrize(
    "name, value, text",
    [("due_ms", 10**18, f"{10**18} ms"), ("due_ms", 2**200, f"{2**200} ms"), ("ttl_ms", 4 * 10**12, "46296 d 7 h")],
)
def test_far_ahead(name: str, value: int, text: str) -> None:
    """No calendar has it; a long duration is no moment."""
    assert as_text([{name: value}], "x").splitlines()[1] == text


def test_columns_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The widest are cut, so that each row is one line; into a file nothing is cut."""
    rows = [{"name": "a" * 60, "state": "running", "user": "b" * 30}]
    assert "…" not in as_text(rows, "x")
    monkeypatch.setattr(ctl_command, "sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setenv("COLUMNS", "50")
    lines = as_text(rows, "x").splitlines()
    assert max(map(len, lines)) == 50 and lines[1].count("…") == 2 and "running" in lines[1]


def test_where_a_message_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Its queue, its state, the client that has it; a time to come is given as people write it."""
    with start_broker() as running:
        parameters = pika.URLParameters(running.url)
        parameters.client_properties = {"connection_name": "billing"}
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.queue_declare("orders")
            for number in range(2):
                properties = pika.BasicProperties(message_id=f"order-{number}", correlation_id=f"trace-{number}")
                channel.basic_publish("", "orders", b"x", properties)
            channel.basic_qos(prefetch_count=1)
            channel.basic_consume("orders", lambda *delivery: None, consumer_tag="bill")
            connection.process_data_events(0)

            def where(id_: str) -> list[dict[str, Any]]:
                found: list[dict[str, Any]] = request(running.url, "where", {"message-id": id_})
                return found

            (held,), (ready,) = where("order-0"), where("trace-1")
            assert (held["queue"], held["state"], held["client"], held["consumer"]) == (
                "orders", "unacked", "billing", "bill",
            )  # fmt: skip
            assert (ready["state"], ready["client"]) == ("ready", None)
            assert where("order-7") == []
            report = request(running.url, "where", {"message-id": "order-7", "report": True})
            assert report == {"items": [], "looked_at": 2, "queues": 1, "of_queues": 1, "stopped": ""}
            for words, hint in {("connection", "biling"): "billing", ("consumers", "queue=order"): "orders"}.items():
                assert main(["ctl", "--url", running.url, *words]) == 1
                assert f"did you mean {hint!r}?" in capsys.readouterr().err
            assert main(["ctl", "--url", running.url, "where", "order-0"]) == 0
            assert "looked at 2 messages in 1 of 1 queues" in capsys.readouterr().out
            assert main(["ctl", "--url", running.url, "scheduled", "reschedule", "orders", "1", "soon"]) == 1


def test_watch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It asks again and again, and ends with the interrupt, or with what goes wrong."""
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ctl_command, "time", SimpleNamespace(sleep=sleep))
    with start_broker() as running:
        assert main(["ctl", "--url", running.url, "--watch", "5", "vhosts", "list"]) == 0
        assert pauses == [5, 5] and capsys.readouterr().out.count("  vhosts list") == 2
        assert main(["ctl", "--url", running.url, "--watch", "1", "consumers", "queue=nothing"]) == 1
        assert len(pauses) == 2
        pauses.clear()
        capsys.readouterr()
        assert main(["ctl", "--url", running.url, "--json", "--watch", "1", "permissions", "list"]) == 0
        row = '[{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}]'
        assert capsys.readouterr().out == f"{row}\n" * 2
