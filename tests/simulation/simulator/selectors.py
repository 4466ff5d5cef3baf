"""Filters and selectors of consumers, and what each of them takes, by what the header "of" of a message says.

Source: queues page A.2; selectors as JMS has them: what compares with a header that is missing is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

from leveret.interop.wire.raw_codec import Content

Takes = Callable[[str | None], bool]

#: `x-filter`, in the dialect of AMPS.
FILTERS: dict[str, Takes] = {
    "of = 'a'": lambda of: of == "a",
    "of <> 'b'": lambda of: of is not None and of != "b",
}
#: `x-selector`.
SELECTORS: dict[str, Takes] = {
    "'a' = of": lambda of: of == "a",
    "'a' <> of": lambda of: of is not None and of != "a",
    "NOT (of = 'a')": lambda of: of is not None and of != "a",
    "of IN ('a', 'b')": lambda of: of in ("a", "b"),
    "of NOT IN ('a', 'b')": lambda of: of is not None and of not in ("a", "b"),
    "of IS NULL": lambda of: of is None,
    "of IS NOT NULL": lambda of: of is not None,
    "of LIKE '%.log'": lambda of: of is not None and of.endswith(".log"),
    "of LIKE 'ab%ba'": lambda of: of is not None and len(of) >= 4 and of[:2] == "ab" and of[-2:] == "ba",
    "of LIKE '%b%a%'": lambda of: of is not None and "a" in of.partition("b")[2],
    "of LIKE 'a!%' ESCAPE '!'": lambda of: of == "a%",
    "of LIKE 'a_c'": lambda of: of is not None and len(of) == 3 and of[0] + of[2] == "ac",
    "NOT (of = 'a' OR other = 1)": lambda of: False,
    "NOT (of = 'a' AND other = 1)": lambda of: of is not None and of != "a",
    "of = 'a' OR other = 1": lambda of: of == "a",
}
TAKES: dict[str, Takes] = {"": lambda of: True, **FILTERS, **SELECTORS}
#: What the header says, where somebody selects.
TEXTS = ("a", "b", "c", "x.log", "x.log.old", "aba", "abba", "ba", "a%", "a!", "a\nc", "abc")


def arguments_of(text: str) -> dict[str, tuple[str, str]]:
    """Of a basic.consume with this filter or selector; none if it is empty."""
    return {"x-selector" if text in SELECTORS else "x-filter": ("S", text)} if text else {}


def of_in(header: bytes) -> str | None:
    """What a content header says."""
    tagged = Content(header[12:], b"").headers.get("of")
    return None if tagged is None else str(tagged[1].decode())
