"""From where, how far and how fast a consumer reads the log, as its arguments say (queues page A.3, A.8, H.2)."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.engine.errors import InvalidArgument
from leveret.engine.leases.replay_rules import Boundary, Rate, ReplayRules, replay_rules
from leveret.engine.messages.field_table import Field
from leveret.testing.harness import arguments_of

#: The newest message of the log, and the time.
LAST, NOW_MS = 9, 7_200_000


def rules(last_id: int = LAST, **arguments: Any) -> ReplayRules:
    """Of these arguments."""
    return replay_rules(
        arguments_of(arguments), last_id=last_id, next_id=last_id + 1, now_ms=NOW_MS, name="q", vhost="/"
    )


@pytest.mark.parametrize(
    "offset, first",
    [
        ("first", Boundary()),
        ("last", Boundary(LAST)),
        ("next", None),
        (Field("l", 5), Boundary(5)),
        (Field("l", -5), Boundary()),
        ("1h", Boundary(wall_ms=3_600_000)),
        ("5h", Boundary(wall_ms=1)),
        (Field("T", 0), Boundary(wall_ms=1)),
    ],
)
def test_offsets(offset: object, first: Boundary | None) -> None:
    """An age beyond the beginning of time, and a time of 0, are times."""
    assert rules(x_stream_offset=offset) == ReplayRules(first)


def test_the_last_of_an_empty_log() -> None:
    """Only new messages."""
    assert rules(0, x_stream_offset="last") == ReplayRules(None)


@pytest.mark.parametrize(
    "bookmark, first, last",
    [
        ("0", Boundary(), None),
        ("1|5|", Boundary(5, is_included=False), None),
        ("1|7|, 1|5|,2|3|,1|0|", Boundary(5, is_included=False), None),
        ("1|7|,1|10|", Boundary(7, is_included=False), None),
        ("2|5|", None, None),
        ("1|10|", None, None),
        ("20240601T000000Z", Boundary(wall_ms=1_717_200_000_000), None),
        ("20240601T000000.25Z", Boundary(wall_ms=1_717_200_000_250), None),
        ("20240601T000000.123456Z", Boundary(wall_ms=1_717_200_000_123), None),
        ("[1|3|:1|7|]", Boundary(3), Boundary(7)),
        ("(1|3|:1|7|)", Boundary(3, is_included=False), Boundary(7, is_included=False)),
        (
            "[0:20240601T000000Z)",
            Boundary(),
            Boundary(wall_ms=1_717_200_000_000, is_included=False),
        ),
    ],
)
def test_bookmarks(bookmark: str, first: Boundary | None, last: Boundary | None) -> None:
    """Of several the oldest that this log has; those of other logs and of later messages do not count."""
    assert rules(x_bookmark=bookmark) == ReplayRules(first, last)


@pytest.mark.parametrize(
    "rate, expected",
    [
        (1000, Rate(messages=1000)),
        ("1.5", Rate(messages=1.5)),
        ("2 KB", Rate(octets=2048)),
        ("3mb", Rate(octets=3 * 1024**2)),
        ("2x", Rate(times=2)),
    ],
)
def test_rates(rate: object, expected: Rate) -> None:
    """Messages or octets a second, or a multiple of the speed of publishing, in letters of either case."""
    assert rules(x_stream_offset="first", x_rate=rate) == ReplayRules(Boundary(), None, expected)


def test_a_pause_between_messages_has_a_limit() -> None:
    """Where the speed is that of publishing."""
    found = rules(x_stream_offset="first", x_rate="2X", x_rate_max_gap="100ms")
    assert found == ReplayRules(Boundary(), None, Rate(times=2), 100)


@pytest.mark.parametrize(
    "arguments, key",
    [
        ({"x_stream_offset": "first", "x_bookmark": "0"}, "x-bookmark"),
        ({"x_rate": 5}, "x-rate"),
        ({"x_rate_max_gap": "1s"}, "x-rate-max-gap"),
        ({"x_stream_offset": "first", "x_rate_max_gap": "1s"}, "x-rate-max-gap"),
        ({"x_stream_offset": "first", "x_rate": 5, "x_rate_max_gap": "1s"}, "x-rate-max-gap"),
        ({"x_stream_offset": "first", "x_rate": 0}, "x-rate"),
        ({"x_stream_offset": "first", "x_rate": "5 GX"}, "x-rate"),
        ({"x_bookmark": "[1|3|:2|7|)"}, "x-bookmark"),
        ({"x_bookmark": "1|3"}, "x-bookmark"),
        ({"x_bookmark": 5}, "x-bookmark"),
    ],
)
def test_what_makes_no_sense_names_the_argument(arguments: dict[str, object], key: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        rules(**arguments)
    assert vars(refused.value)["key"] == key


@pytest.mark.parametrize("by_time", [False, True])
@pytest.mark.parametrize("at, before, after", [(4, True, False), (5, False, False), (6, False, True)])
def test_which_messages_are_within(by_time: bool, at: int, before: bool, after: bool) -> None:
    """At the boundary those that it includes are on both sides of it; `at`: that of the boundary, the message is 5."""
    values = {"wall_ms": at} if by_time else {"id": at}
    for is_included in (True, False):
        boundary = Boundary(**values, is_included=is_included)
        is_same = at == 5 and is_included
        assert boundary.is_before(5, 5) == (before or is_same)
        assert boundary.is_after(5, 5) == (after or is_same)
