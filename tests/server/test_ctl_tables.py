"""Tables, times and rates of `leveret ctl`, as text in and text out. Source: interfaces page."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from leveret.cli.ctl_command import as_text
from leveret.cli.rates import Rates
from leveret.cli.tables import as_table
from leveret.cli.times import delay_of, seconds_of

NOW = datetime(2026, 1, 30, 22, 0, tzinfo=UTC)
CLIENT = {
    "name": "10.20.30.40:50001 -> 10.20.30.41:5672", "connection_name": "order import of the web shop",
    "user": "guest", "vhost": "/", "peer": "10.20.30.40:50001", "state": "blocked", "channels": 1,
    "blocked_by": [{"destination": "address 'orders' in vhost '/'", "limit": "max-size-messages", "waiting_ms": 4000}],
}  # fmt: skip


@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_rows_fit_and_the_name_is_whole(width: int) -> None:
    """The client is first and whole; what has no room is named, as far as it has room."""
    lines = as_table([CLIENT, {**CLIENT, "connection_name": None, "name": "1:2 -> 3:4"}], width).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("connection_name") and lines[1].startswith("order import of the web shop")
    assert [line.split("  ")[0] for line in lines[2:] if line[0] not in " ("] == ["1:2 -> 3:4"]
    assert ("more column" in lines[-1]) == (width < 200)


def test_cells_are_cut_in_the_middle() -> None:
    """Both ends of a cell tell it from others."""
    rows = [{"name": "q", "text": "beginning " + 40 * "x" + " end", "vhost": "/", "exclusive": False}]
    assert as_table(rows, 20).splitlines() == ["name  text", "q     beginni…xx end"]
    assert "exclusive" in as_table(rows, None) and "…" not in as_table(rows, None)


HELD = {"publishes": 21_084, "bytes": 800_854, "spooled_bytes": 5_011_237, "unread": False}
VERSION = {
    "id": 2, "kind": "policy", "name": "oops", "change": "changed", "by": "guest by ctl", "command": "policies set",
    "differs": [{"key": "definition", "now": {"max-length": 10}, "then": {"max-length": 9, "overflow": "drop-head"}}],
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 100, 120])
def test_lists_and_objects_take_several_lines(width: int) -> None:
    """Why a client is blocked, what it holds, and what a change was: all of it is read, at any width."""
    for row, words in (
        (
            {**CLIENT, "connection_name": "order import", "held": HELD},
            "'orders' limit=max-size-messages waiting=4 s publishes=21084 spooled_bytes=5011237",
        ),
        (VERSION, '{"max-length": 10} → "overflow": "drop-head"} policy'),
    ):
        lines = as_table([row], width).splitlines()
        assert max(map(len, lines)) <= width
        shown = " ".join(lines).split()
        assert [word for word in words.split() if word not in shown] == []


def test_a_name_wider_than_the_terminal() -> None:
    """It is cut itself, before a row wraps; also in columns of wide characters."""
    assert as_table([{"name": 60 * "a", "ready": 1}], 20).splitlines()[1] == "aaaaaa…aaaaaa  1"
    assert as_table([{"name": 10 * "兎"}], 8).splitlines()[1] == "兎兎…兎"
    assert as_table([{"name": "abc"}], 1).splitlines()[1] == "…"


def test_times_of_jobs_and_dead_letters() -> None:
    """They are read as times, though their names have no unit; a list of nothing says so."""
    job: dict[str, Any] = {"id": 1, "started": 0, "ended": None}
    assert " ms" not in as_text([job], "jobs") and "1970-01-01" in as_text(
        [{**job, "started": 86_400_000 // 2}], "jobs"
    )
    assert "started: 1970-01-01" in as_text({**job, "started": 43_200_000}, "replay")
    row = {"queue": "q", "vhost": "/", "messages": 3, "looked_at": 3, "oldest": 43_200, "causes": []}
    assert "1970-01-01" in as_text({"queues": 1, "items": [row]}, "dead-letters")
    assert as_text([], "jobs") == "none"
    assert as_text({"uptime_ms": 61_000}, "status") == "uptime: 1 min 1 s"


def test_dead_letters_say_what_is_not_counted() -> None:
    """Causes of the first messages are not taken for those of all, nor the queues that are listed for all of them."""
    whole = {"queue": "q", "vhost": "/", "messages": 3, "looked_at": 3, "oldest": None, "causes": []}
    part = {**whole, "queue": "deep", "messages": 9_000, "looked_at": 5_000}
    assert "counted" not in as_text({"queues": 1, "items": [whole]}, "dead-letters")
    text = as_text({"queues": 3, "items": [whole, part]}, "dead-letters")
    assert "of deep the first 5000 of 9000; the rest was not read" in text and "1 more queue" in text
    assert as_text({"queues": 0, "items": []}, "dead-letters") == "none"


def test_each_cause_of_dead_letters_has_a_row() -> None:
    """With how many there are of it, beside all that is in the queue."""
    causes = [
        {"cause": cause, "origin": "o", "exchange": "", "count": count}
        for cause, count in (("expired", 2), ("rejected", 1))
    ]
    row = {"queue": "q", "vhost": "/", "messages": 3, "looked_at": 3, "oldest": None, "causes": causes}
    assert [line.split() for line in as_text({"queues": 1, "items": [row]}, "dead-letters").splitlines()] == [
        ["queue", "cause", "origin", "count", "in-queue", "vhost"],
        ["q", "expired", "o", "2", "3", "/"],
        ["q", "rejected", "o", "1", "3", "/"],
    ]


@pytest.mark.parametrize("text, seconds", [("90", 90), ("0.5", 0.5), ("90s", 90), ("5m", 300), ("2h", 7200)])
def test_time_limits(text: str, seconds: float) -> None:
    """Numbers are seconds."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["0", "0s", "-1", "nan", "inf", "25h", "9" * 400, "5x", ""])
def test_time_limits_that_are_none(text: str) -> None:
    """Refused with the forms that are understood."""
    with pytest.raises(ValueError, match="a time like 500ms"):
        seconds_of(text)


@pytest.mark.parametrize(
    "text, delay",
    [
        ("23:30", "5400000"),
        ("03:12", "18720000"),
        ("22:00", "86400000"),
        ("2026-01-30T22:00:01", "1000"),
        ("2026-01-30 23:00+01:00", None),
        ("2026-01-31T00:00Z", "7200000"),
        ("2026-13-01", None),
        ("24:00", "24:00"),
        ("5m", "5m"),
    ],
)
def test_moments(text: str, delay: str | None) -> None:
    """A time of day is the next one; a date without a zone is of the operator's; other text is the broker's to read."""
    if delay is None:
        with pytest.raises(ValueError, match="is in the past|is not a date"):
            delay_of(text, NOW)
    else:
        assert delay_of(text, NOW) == delay


@pytest.mark.parametrize(
    "text, hours", [("11:00", 22), ("13:00", 1), ("2026-03-29T12:00", 23), ("2026-03-29T12:00+01:00", 24)]
)
def test_moments_after_summer_time_begins(text: str, hours: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time is of the clock on the wall: the day on which the clock is put forward has 23 hours."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        assert delay_of(text, datetime(2026, 3, 28, 12)) == str(hours * 3_600_000)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_rates() -> None:
    """Per second since the look before; not known of a queue that is new, or was made again."""
    times = iter([10.0, 12.0, 13.0])
    rates = Rates(lambda: next(times))

    def row(enqueued: int) -> list[dict[str, Any]]:
        counters = {"enqueued": enqueued, "delivered": 0, "acknowledged": 0}
        return [{"vhost": "/", "name": "q", "unacked": 0, "counters": counters}]

    assert "in/s" not in as_table(rates.with_rates(row(5), "queues"), None)
    (second,) = rates.with_rates(row(9), "queues")
    assert (second["in/s"], second["out/s"]) == (2.0, 0.0)
    (third,) = rates.with_rates(row(1), "queues")
    assert third["in/s"] is None
    times = iter([1.0, 2.0])
    rates = Rates(lambda: next(times))
    assert rates.with_rates({"counters": {"published": 3}}, "status") == {"counters": {"published": 3}}
    assert rates.with_rates({"counters": {"published": 8}}, "status") == {"counters": {"published": "8 (5.0/s)"}}
