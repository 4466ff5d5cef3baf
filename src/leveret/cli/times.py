"""Times as people write them: durations (`90s`, `5m`, `2h`), times of day (`03:12`) and ISO dates."""

import re
from datetime import datetime, timedelta

from ..settings.values import duration_ms

#: Values named `..._WORD_ms` with these words are moments; others are durations.
MOMENTS = frozenset({"at", "due", "from", "since", "started", "ended", "oldest"})
#: Maximum seconds of a time limit, and of the pause of --watch.
SECONDS_MAX = 86400
TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d.*", re.ASCII)


def seconds_of(text: str) -> float:
    """The seconds in a number or a duration. Raises: ValueError, with a text for the user."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = duration_ms(text) / 1000
        except ValueError:
            seconds = 0
    if not 0 < seconds <= SECONDS_MAX:
        raise ValueError(f"{text!r} is not a time above 0 and up to 24h: seconds, or a time like 500ms, 90s, 5m, 2h")
    return seconds


def delay_of(text: str, now: datetime) -> str:
    """The milliseconds until a time of day (today or tomorrow) or an ISO date; other text unchanged.

    now: its time zone applies to texts without one; if it has none, that of this machine, with its summer time.
    Raises: ValueError: the date does not exist, or is in the past.
    """
    if match := TIME_OF_DAY.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in match.groups())
        then = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        if then <= now:
            then += timedelta(days=1)
    elif ISO_DATE.fullmatch(text):
        try:
            then = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a date: expected one like 2026-01-31T03:12") from None
        then = then if then.tzinfo is not None else then.replace(tzinfo=now.tzinfo)
    else:
        return text
    delay_s = then.timestamp() - now.timestamp()
    if delay_s <= 0:
        raise ValueError(f"{text!r} is in the past")
    return str(round(delay_s * 1000))


def time_text(ms: int, name: str, today: str = "") -> str:
    """Milliseconds as people write them: a moment or a duration, according to the name. `today`: the date to omit."""
    if name.replace("-", "_").split("_")[-2] in MOMENTS:
        try:
            return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S").removeprefix(f"{today} ")
        except (ValueError, OverflowError, OSError):  # after the year 9999
            return f"{ms} ms"
    if ms < 1000:
        return f"{ms} ms"
    parts: list[str] = []
    rest = ms // 1000
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        whole, rest = divmod(rest, size)
        if whole and len(parts) < 2:
            parts.append(f"{whole} {unit}")
        elif parts:
            break
    return " ".join(parts)
