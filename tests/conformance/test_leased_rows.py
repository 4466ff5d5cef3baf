"""Every row of queues page G.A, G.B, G.C, G.F and H.4 has a test that cites it, or says here why it has none."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "queues.md"
SECTIONS = ("G.A", "G.B", "G.C", "G.F", "H.4")
_LIST = r"[A-Z][0-9]{2}(?:(?:,| and| to|, and)\s+[A-Z][0-9]{2})*"
#: `queues page, row A01`, `Queues page, rows A17, A18`, also over the end of a line.
_CITED = re.compile(rf"queues page(?:,\s+| G\.[A-F],\s+| [A-Z.0-9 and,]*\s)rows?\s+({_LIST})", re.IGNORECASE)
#: Names of tests in a file that says whose rows they are.
_NAMED = re.compile(r"^def test((?:_[abcfh][0-9]{2})+)", re.MULTILINE)
_SAYS = re.compile(r"queues page[^\"]*(?:G\.[ABCF]|H\.4)|of H\.4", re.IGNORECASE)

#: Row -> why no test of this suite cites it. A row that gets its test leaves here.
WITHOUT = {
    **dict.fromkeys(
        ("F01",), "thresholds of time and memory: benchmarks/deep.py (FB1, FB2, FB4, FB6), benchmarks/selecting.py"
    ),
}


def rows_of_the_page() -> list[str]:
    """Ids of all rows of these sections; of A35 to A42 the first."""
    found: list[str] = []
    for section in SECTIONS:
        (text,) = re.findall(rf"^#+ {re.escape(section)} .*?(?=^#)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        found += re.findall(r"^\| ([A-Z][0-9]{2})(?:–[A-Z][0-9]{2})? \|", text, re.MULTILINE)
    return found


def rows_of_the_tests() -> dict[str, list[str]]:
    """Row -> files that cite it."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if path == Path(__file__):
            continue
        text = path.read_text()
        ids = [one for listed in _CITED.findall(text) for one in re.findall(r"[A-Z][0-9]{2}", listed)]
        if _SAYS.search(text):
            ids += [one.upper() for names in _NAMED.findall(text) for one in names.strip("_").split("_")]
        for one in ids:
            found.setdefault(one, []).append(path.name)
    return found


def test_the_page_is_read() -> None:
    """All of its tables."""
    rows = rows_of_the_page()
    assert len(rows) == len(set(rows)) == 89
    assert {row[0] for row in rows} == set("ABCFH")


def test_each_row_has_its_test() -> None:
    """But for those of `WITHOUT`."""
    cited = rows_of_the_tests()
    assert [row for row in rows_of_the_page() if row not in cited and row not in WITHOUT] == []


def test_reasons_are_about_rows() -> None:
    """A row that is gone needs none."""
    assert set(WITHOUT) <= set(rows_of_the_page())
