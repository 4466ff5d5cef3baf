"""Ranges of samples that a request asks for. Source: management page 5.3."""

from dataclasses import dataclass

from .http_messages import Refusal, Request

#: The kinds of ranges, which are prefixes of parameters.
KINDS = ("lengths", "msg_rates", "data_rates", "node_stats")
POINTS_MAX = 500


@dataclass(slots=True, frozen=True)
class Range:
    """A range of samples. `age`: of the oldest one. `step`: between two of them. Both in seconds."""

    age: int
    step: int


def ranges_of(request: Request, error: str = "bad_request") -> dict[str, Range]:
    """The ranges by kind. One with a missing or malformed number is ignored. Raises: Refusal with this error."""
    found = {}
    for kind in KINDS:
        age, step = (_seconds(request.query.get(f"{kind}_{word}")) for word in ("age", "incr"))
        if age is None or step is None:
            continue
        if age <= 0 or step <= 0 or age // step > POINTS_MAX:
            raise Refusal(400, error, f"Invalid range parameters: age {age}, incr {step}")
        found[kind] = Range(age, step)
    return found


def _seconds(text: str | None) -> int | None:
    digits = (text or "").removeprefix("-")
    return int(text) if text and digits.isascii() and digits.isdigit() and len(digits) < 10 else None
