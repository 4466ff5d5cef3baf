"""Prometheus' text format: families, samples, labels. Source: management page 12; text format 0.0.4."""

from collections.abc import Mapping
from typing import NamedTuple

COUNTER, GAUGE, UNTYPED, HISTOGRAM = "counter", "gauge", "untyped", "histogram"
CONTENT_TYPE = ("content-type", "text/plain; version=0.0.4; charset=utf-8")


class Family(NamedTuple):
    """`name`: without prefix. `help`: one line."""

    name: str
    kind: str
    help: str


class Sample(NamedTuple):
    """`suffix`: after the family's name, for histograms. `labels`: as text, with their braces."""

    value: float
    labels: str = ""
    suffix: str = ""


def escaped(text: str) -> str:
    """A label's value, escaped: names of queues may contain quotes and line ends.

    NUL, at which Prometheus' reader would stop, is spelled out.
    """
    if text.isalnum():
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text.replace("\0", "\\\\0") if "\0" in text else text


def labelled(values: Mapping[str, str]) -> str:
    """Labels with their braces; empty without labels."""
    if not values:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in values.items()) + "}"


def number(value: float) -> str:
    """A number as text; not a number: NaN."""
    if value != value:
        return "NaN"
    return repr(value) if isinstance(value, float) else str(int(value))


def head(prefix: str, family: Family) -> str:
    """The two lines before a family's samples."""
    name = prefix + family.name
    return f"# TYPE {name} {family.kind}\n# HELP {name} {family.help}\n"


def rendered(prefix: str, family: Family, samples: list[Sample]) -> str:
    """A family with its samples."""
    name = prefix + family.name
    lines = [f"{name}{one.suffix}{one.labels} {number(one.value)}\n" for one in samples]
    return head(prefix, family) + "".join(lines)


def encoded(text: str) -> bytes:
    """The octets to send; half of a surrogate pair, which is no text, becomes a question mark."""
    return text.encode("utf-8", "replace")


def _bound(value: float) -> str:
    """A bound in the form that dashboards expect: 100.0, 1e+06."""
    return str(float(value)) if value < 1_000_000 else f"{value:g}"


def histogram(bounds: tuple[float, ...], counts: list[int], total: float, labels: str = "") -> list[Sample]:
    """The samples of a histogram. `counts`: of each bucket alone; the last one is above all bounds. `labels`: as text,
    without braces.
    """
    samples, sum_so_far, comma = [], 0, "," if labels else ""
    for bound, count in zip((*map(_bound, bounds), "+Inf"), counts):
        sum_so_far += count
        samples.append(Sample(sum_so_far, f'{{{labels}{comma}le="{bound}"}}', "_bucket"))
    braces = f"{{{labels}}}" if labels else ""
    return [*samples, Sample(sum_so_far, braces, "_count"), Sample(total, braces, "_sum")]
