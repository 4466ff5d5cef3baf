"""The argument x-stream-offset of a stream consumer: where it starts. `queues/stream.py` finds the offset.

Source: behaviour page 3.7.
"""

import re
from typing import NamedTuple

from ..messages.field_table import INTEGER_TAGS, Field

_AGE = re.compile(rb"([0-9]{1,12})([YMDhms])")
_UNIT_MS = {b"Y": 365 * 86_400_000, b"M": 30 * 86_400_000, b"D": 86_400_000, b"h": 3_600_000, b"m": 60_000, b"s": 1000}
FIRST, LAST, NEXT, AT_OFFSET, AT_TIME, AGO = "first", "last", "next", "offset", "time", "ago"


class Start(NamedTuple):
    """Where a consumer starts. `value`: the offset (AT_OFFSET), wall time in ms (AT_TIME) or age in ms (AGO)."""

    kind: str
    value: int = 0


def start_of(field: Field | None) -> Start | None:
    """Parse the argument. Without it (None) a consumer starts at the end. Returns None if it is invalid."""
    if field is None:
        return Start(NEXT)
    value = field.value
    if field.tag == "S":
        assert isinstance(value, bytes)
        if value in (b"first", b"last", b"next"):
            return Start(value.decode())
        ago = age_ms(value)
        return None if ago is None else Start(AGO, ago)
    if field.tag == "T":
        assert isinstance(value, int)
        return Start(AT_TIME, value * 1000)
    if field.tag in INTEGER_TAGS:
        assert isinstance(value, int)
        return Start(AT_OFFSET, value)
    return None


def age_ms(text: bytes) -> int | None:
    """Parse a time span such as 7D or 5m into ms; None: invalid. M is a month of 30 days, m a minute."""
    match = _AGE.fullmatch(text)
    return None if match is None else int(match[1]) * _UNIT_MS[match[2]]
