"""Prometheus' text format: families, samples, labels. Source: management page 12; text format 0.0.4."""

from collections.abc import Mapping
from typing import NamedTuple

COUNTER, GAUGE, UNTYPED, HISTOGRAM = "counter", "gauge", "untyped", "histogram"
CONTENT_TYPE = ("content-type", "text/plain; version=0.0.4; charset=utf-8")


class Family(NamedTuple):
    """A family of metrics. `name`: without its prefix. `help`: one line."""

    name: str
    kind: str
    help: str


class Sample(NamedTuple):
    """A value of a family. `labels`: as text, with braces. `suffix`: is appended to the name, for histograms."""

    value: float
    labels: str = ""
    suffix: str = ""


def escaped(text: str) -> str:
    """The value of a label with quotes, backslashes and line ends escaped.

    Prometheus would stop reading at a NUL, so it gets a backslash and a 0 instead.
    """
    if text.isalnum():
        return text
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text.replace("\0", "\\\\0") if "\0" in text else text


def labelled(values: Mapping[str, str]) -> str:
    """Labels as text, with braces; "": there are none."""
    if not values:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in values.items()) + "}"


def number(value: float) -> str:
    """A number as text. One that is not a number becomes NaN."""
    if value != value:
        return "NaN"
    return repr(value) if isinstance(value, float) else str(int(value))


def head(prefix: str, family: Family) -> str:
    """The two lines before a family's samples."""
    name = prefix + family.name
    return f"# TYPE {name} {family.kind}\n# HELP {name} {family.help}\n"


def rendered(prefix: str, family: Family, samples: list[Sample]) -> str:
    """A family with its samples, as text."""
    name = prefix + family.name
    lines = [f"{name}{one.suffix}{one.labels} {number(one.value)}\n" for one in samples]
    return head(prefix, family) + "".join(lines)


def encoded(text: str) -> bytes:
    """A text in UTF-8. A lone surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")


def _bound(value: float) -> str:
    """A bound as text, in the form that dashboards expect: 100.0, 1e+06."""
    return str(float(value)) if value < 1_000_000 else f"{value:g}"


def histogram(bounds: tuple[float, ...], counts: list[int], total: float, labels: str = "") -> list[Sample]:
    """The samples of a histogram. `total`: the sum of the values. `labels`: as text, without braces.

    `counts`: values in each bucket, not cumulative; the last bucket is above all bounds.
    """
    samples, cumulative, comma = [], 0, "," if labels else ""
    for bound, count in zip((*map(_bound, bounds), "+Inf"), counts):
        cumulative += count
        samples.append(Sample(cumulative, f'{{{labels}{comma}le="{bound}"}}', "_bucket"))
    braces = f"{{{labels}}}" if labels else ""
    return [*samples, Sample(cumulative, braces, "_count"), Sample(total, braces, "_sum")]
