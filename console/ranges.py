"""Ranges of samples that a request asks for: how far back, in which steps. Source: management page 5.3."""

from dataclasses import dataclass

from .messages import Refusal, Request

#: What can be asked for, by the beginning of the parameters.
KINDS = ("lengths", "msg_rates", "data_rates", "node_stats")
POINTS_MAX = 500


@dataclass(slots=True, frozen=True)
class Range:
    """Seconds back, and between two samples."""

    age: int
    step: int


def ranges_of(request: Request, error: str = "bad_request") -> dict[str, Range]:
    """By kind; a pair of which one is missing or no number is ignored. Raises: Refusal with this error."""
    found = {}
    for kind in KINDS:
        age, step = (_seconds(request.query.get(f"{kind}_{word}")) for word in ("age", "incr"))
        if age is None or step is None:
            continue
        if age <= 0 or step <= 0 or age / step > POINTS_MAX:
            raise Refusal(400, error, f"Invalid range parameters: age {age}, incr {step}")
        found[kind] = Range(age, step)
    return found


def _seconds(text: str | None) -> int | None:
    digits = (text or "").removeprefix("-")
    return int(text) if text and digits.isascii() and digits.isdigit() and len(digits) < 10 else None
