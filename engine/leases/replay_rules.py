"""Points in the log: where the replay of a consumer begins and ends, and from where a queue is built.

Source: queues page A.3, A.8, C.3, C.5, H.2.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from ...settings.leases.element_values import BadValue, duration, is_timestamp
from ...settings.values import shown
from ..errors import InvalidArgument
from ..messages.content import OFFSET
from ..messages.field_table import INTEGER_TAGS, Field, FieldTable
from ..rules.arguments import AGO, AT_OFFSET, AT_TIME, FIRST, LAST, Reason, start_of
from .headers import ORIGIN

BOOKMARK, RATE, GAP = "x-bookmark", "x-rate", "x-rate-max-gap"
#: Each of these arguments starts a replay; the others set its rate.
REPLAYS = (OFFSET, BOOKMARK)
REPLAY_ARGUMENTS = frozenset((*REPLAYS, RATE, GAP))
_BOOKMARK = re.compile(r"([0-9]{1,20})\|([0-9]{1,20})\|")
_RANGE = re.compile(r"([\[(])([^:]*):([^:]*)([\])])")
_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(|B|KB|MB|GB|X)", re.IGNORECASE)
_OCTETS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
#: Maximum bookmarks in one argument.
_BOOKMARKS_MAX = 1000
#: Recovery points: the whole log; the messages since the queue was declared. Others: "now", a time, a bookmark.
EPOCH, CREATION = "epoch", "creation"


class Boundary(NamedTuple):
    """The start or end of a replay: a message id, or a wall time in ms (0: a message id)."""

    id: int = 0
    wall_ms: int = 0
    is_included: bool = True

    def is_before(self, id_: int, wall_ms: int) -> bool:
        """Whether this boundary is before a message, or at a message that it includes."""
        own, other = (self.wall_ms, wall_ms) if self.wall_ms else (self.id, id_)
        return own < other or (own == other and self.is_included)

    def is_after(self, id_: int, wall_ms: int) -> bool:
        """Whether this boundary is after a message, or at a message that it includes."""
        own, other = (self.wall_ms, wall_ms) if self.wall_ms else (self.id, id_)
        return other < own or (own == other and self.is_included)


class Rate(NamedTuple):
    """Messages per second, octets per second, or a multiple of the speed of publishing. Two of the three are 0."""

    messages: float = 0
    octets: float = 0
    times: float = 0


@dataclass(slots=True, frozen=True)
class ReplayRules:
    """The part of the log that a consumer reads, and the speed.

    `first`: None: only new messages. `last`: None: no end. `rate`: None: no limit. `gap_ms`: maximum pause between
    messages.
    """

    first: Boundary | None
    last: Boundary | None = None
    rate: Rate | None = None
    gap_ms: int | None = None


def replay_rules(
    arguments: FieldTable, *, last_id: int, next_id: int, now_ms: int, name: str, vhost: str
) -> ReplayRules:
    """Parse a consumer's arguments, of which at least one is in `REPLAY_ARGUMENTS`.

    `last_id`: id of the newest message; 0: there is none. `next_id`: above the ids of all messages.
    Raises: InvalidArgument.
    """
    given = [key for key in REPLAYS if key in arguments]
    key = OFFSET
    try:
        if not given:
            key = RATE if RATE in arguments else GAP
            raise _Bad(f"expected {' or '.join(REPLAYS)} beside it")
        key = given[-1]
        if len(given) > 1:
            raise _Bad(f"only one of {' and '.join(REPLAYS)} may be given")
        field = arguments[key]
        boundaries = _of_offset(field, last_id, now_ms) if key == OFFSET else _of_bookmark(_text(field), next_id)
        key = RATE
        rate = _rate(arguments[RATE]) if RATE in arguments else None
        key = GAP
        gap_ms = _gap(arguments[GAP]) if GAP in arguments else None
        if gap_ms is not None and (rate is None or not rate.times):
            raise _Bad(f"expected {RATE} beside it that is a multiple of the original speed, like 2X")
    except _Bad as bad:
        raise InvalidArgument(key=key, name=name, vhost=vhost, reason=Reason("text", str(bad))) from None
    return ReplayRules(*boundaries, rate, gap_ms)


class _Bad(ValueError):
    """An invalid argument; the text is the reason for the client."""


def _text(field: Field) -> str:
    if not isinstance(field.value, bytes):
        raise _Bad(f"expected text, not {field.type_name}")
    return field.text.strip()


def _of_offset(field: Field, last_id: int, now_ms: int) -> tuple[Boundary | None, Boundary | None]:
    start = start_of(field)
    if start is None:
        raise _Bad("expected first, last, next, an offset, a timestamp, or an age like 1h")
    if start.kind == FIRST:
        return Boundary(), None
    if start.kind == LAST:
        return (Boundary(last_id) if last_id else None), None
    if start.kind == AT_OFFSET:
        return Boundary(max(start.value, 0)), None
    if start.kind == AT_TIME:
        return Boundary(wall_ms=max(start.value, 1)), None
    if start.kind == AGO:
        return Boundary(wall_ms=max(now_ms - start.value, 1)), None
    return None, None


def _of_bookmark(text: str, next_id: int) -> tuple[Boundary | None, Boundary | None]:
    found = _RANGE.fullmatch(text)
    if found is None:
        return _begin(text, next_id), None
    begin, end = (_boundary(part.strip()) for part in found.group(2, 3))
    if begin is None or end is None:
        raise _Bad(f"{shown(text)}: a range is of bookmarks and times, like [20240601T000000Z:20240602T000000Z)")
    return begin._replace(is_included=found[1] == "["), end._replace(is_included=found[4] == "]")


def _begin(text: str, next_id: int) -> Boundary | None:
    """The start of a replay. Of several bookmarks: after the oldest that this log knows. None: only new messages."""
    if text == "0" or is_timestamp(text):
        return _boundary(text)
    ids: list[int] = []
    for part in text.split(",", _BOOKMARKS_MAX):
        found = _BOOKMARK.fullmatch(part.strip())
        if found is None:
            expected = "0, bookmarks with commas between them, a time like 20240601T000000Z, or a range"
            raise _Bad(f"{shown(text)}, expected {expected}")
        if int(found[1]) == ORIGIN and 0 < int(found[2]) < next_id:
            ids.append(int(found[2]))
    return Boundary(min(ids), is_included=False) if ids else None


def _boundary(text: str) -> Boundary | None:
    """A bookmark or a time; None: neither."""
    if text == "0":
        return Boundary()
    if is_timestamp(text):
        return Boundary(wall_ms=_wall_ms_of(text))
    found = _BOOKMARK.fullmatch(text)
    return Boundary(int(found[2])) if found is not None and int(found[1]) == ORIGIN else None


def _wall_ms_of(timestamp: str) -> int:
    """The wall time (ms, from 1 on) of a valid timestamp of AMPS, in UTC (queues page H.2)."""
    whole, _, rest = timestamp.rstrip("Z").partition(".")
    at = datetime.strptime(whole, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    return max(int(at.timestamp()) * 1000 + int((rest + "000")[:3]), 1)


def _rate(field: Field) -> Rate:
    if field.tag in INTEGER_TAGS and isinstance(field.value, int):
        number, unit = float(field.value), ""
    else:
        found = _RATE.fullmatch(_text(field))
        if found is None:
            raise _Bad("expected messages a second like 1000, octets a second like 500KB, or a multiple like 2X")
        number, unit = float(found[1]), found[2].upper()
    if number <= 0:
        raise _Bad("expected a rate above 0")
    if unit == "X":
        return Rate(times=number)
    return Rate(octets=number * _OCTETS[unit]) if unit else Rate(messages=number)


def _gap(field: Field) -> int:
    value = field.text if isinstance(field.value, bytes) else field.value
    try:
        return duration(value)
    except BadValue as bad:
        raise _Bad(str(bad)) from None


# -- recovery points --------------------------------------------------------------------------------------------------


def boundary_of(point: str) -> Boundary | None:
    """The boundary at a valid recovery point (E-RP); None: only new messages."""
    return Boundary() if point == EPOCH else _boundary(point)


def is_known(point: str, first_id: int, next_id: int) -> bool:
    """Whether a log with ids from `first_id` to before `next_id` has the point. Only bookmarks can be unknown."""
    found = _BOOKMARK.fullmatch(point)
    return found is None or (int(found[1]) == ORIGIN and first_id <= int(found[2]) < next_id)
