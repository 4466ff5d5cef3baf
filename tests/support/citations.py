"""Citations in code, tests and docs: where they stand, and whether they lead to something.

The forms and the pages are in docs/reference/README.md. `python tests/support/citations.py` counts them.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
ROOMS = (
    "engine", "settings", "expressions", "journal", "amqp_frontend", "src", "pipeline", "interop", "console", "cluster",
)  # fmt: skip
PLACES = ("*.md", *ROOMS, "tests", "docs", "benchmarks")
SUFFIXES = {".py", ".md", ".toml", ".c"}
#: Recorded runs are no text of ours; the test of the citations has wrong ones on purpose.
LEFT_OUT = (
    "benchmarks/results/",
    "interop/drivers/",
    "src/leveret.egg-info/",
    "tests/test_citations.py",
    "tests/support/citations.py",
)

#: The name in citations -> the file in docs/reference/.
PAGES = {
    "behaviour": "behaviour.md",
    "address-settings": "address-settings.md",
    "queues": "queues.md",
    "performance": "performance.md",
    "spark": "spark.md",
    "management": "management.md",
    "security": "security.md",
    "interfaces": "interfaces.md",
}

SECTION = r"(?:[0-9]+(?:\.[0-9]+)*|[A-I](?:\.[0-9]+)+|G\.[A-F]|[A-I])(?![\w-])"
HEADING = re.compile(rf"^#+ (?:({SECTION}|[0-9][a-z](?:-[a-z])?)\.? )?(.*)$", re.MULTILINE)
NAMED = re.compile(rf"\b({'|'.join(PAGES)}) page\b", re.IGNORECASE)
ROW = r"[A-Z]{1,2}[0-9]{2}"
#: What may follow the name of a page: sections, then rules, steps or rows of the last one, or words in it.
FOLLOWS = re.compile(
    rf",? (?:and |to )?\(?(?:(?P<kind>rules?|steps?|rows?) )?"
    rf"(?P<id>{ROW}|FB[0-9]|{SECTION}|[a-e](?!\w)|\"[^\"]{{1,60}}\")"
)
RULING = re.compile(r"\b(rulings?) ([0-9]+a?(?:(?:, and |, | and | to )[0-9]+a?(?!\w|\.[0-9]))*)", re.IGNORECASE)
RULINGS_WORDS = re.compile(r"\brulings, (\"[^\"]+\")", re.IGNORECASE)
TRAP = re.compile(r"\btraps? ([0-9]+(?:(?:, | and | to )[0-9]+)*)|\btrap\(([0-9]+)\)", re.IGNORECASE)
SEED = re.compile(r"\bseeds? (0[0-9]{2}(?:(?:, | and )0[0-9]{2})*)\b")
DOCS = re.compile(r"(?<![\w/])(docs/[\w/-]+\.md)(?:, (\"[^\"]+\"))?")
#: A file of conformance tests: its tests carry the ids of rows in their names.
DECLARED = re.compile(r"\brows of address-settings page 8", re.IGNORECASE)
NAMES_OF_ROWS = re.compile(
    r"\bdef test((?:_[mcrdle][0-9]{2})+)_|[\"'][mcrdle]([0-9]{2})\b(?=[\"': ])|\b[MCRDLE][0-9]{2}\b"
)
TEST_OF_ROW = re.compile(r"\bdef test_[mcrdle][0-9]{2}_")
#: How a page names its own parts.
IN_ITSELF = re.compile(
    rf"\bsections? (?P<sections>{SECTION}(?:(?:, | and | to |–){SECTION})*)|\brows? [0-9]+ of (?P<of>{SECTION})",
    re.IGNORECASE,
)
#: What looks like a citation and does not say of which page.
SLOPPY = tuple(
    (re.compile(pattern, re.IGNORECASE), problem)
    for pattern, problem in {
        r"\bpages?,? (?:sections? )?(?:[0-9]+|[A-I])\.[0-9]": "which page?",
        rf"(?<!\.txt, )(?<!AMQP 0-9-1 )\bsections? (?:{SECTION})": "which page? (PAGE page N.N)",
        rf"\brows? {ROW}\b|\brows? [0-9]+(?: to [0-9]+)? of [0-9]": "rows of which page?",
        r"\b[\w-]+\.md,? (?:section )?[0-9]": "cite the page by its name",
        r"\b(?:interface|architecture|users|rulings|clients|packaging|style) page\b": "no such page",
        r"\bissue on\b": "not a page of the repository",
    }.items()
)


@dataclass(frozen=True)
class Citation:
    """One reference to one thing. `problem`: why it leads nowhere; empty when it does not."""

    path: str
    line: int
    text: str
    problem: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text!r}: {self.problem or 'found'}"


@dataclass
class Page:
    """A page as text, and its sections by number."""

    text: str
    sections: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        headings = list(HEADING.finditer(self.text))
        for index, heading in enumerate(headings):
            if heading[1]:
                depth = heading[0].index(" ")
                ends = (later.start() for later in headings[index + 1 :] if later[0].index(" ") <= depth)
                self.sections[heading[1]] = self.text[heading.start() : next(ends, len(self.text))]

    def lacks_section(self, number: str) -> bool:
        """Whether there is no such section."""
        return number not in self.sections


def has_row(text: str, row: str) -> bool:
    """Whether a table of the text has a row whose first cell is this id."""
    return re.search(rf"^\| {re.escape(row)} \|", text, re.MULTILINE) is not None


def has_rule(text: str, number: str) -> bool:
    """Whether the text has a numbered line of that number, or a row of that letter."""
    return re.search(rf"^ *{number}\. ", text, re.MULTILINE) is not None or has_row(text, number)


def numbers(text: str) -> list[str]:
    """The numbers of "5, 16" or "3 to 6": the ends of a range stand for it."""
    return re.findall(r"[0-9]+a?", text)


class Resolver:
    """Looks citations up in the pages."""

    def __init__(self, reference: Path = REFERENCE) -> None:
        self.pages = {name: Page((reference / file).read_text()) for name, file in PAGES.items()}
        self.rulings = (reference / "rulings.md").read_text()
        self.seeds = (reference / "README.md").read_text()

    def citations(self, path: str, text: str) -> Iterator[Citation]:
        """All of one file, in no particular order."""
        plain, lines = unwrapped(text)
        taken: list[tuple[int, int]] = []

        def cited(start: int, what: str, problem: str) -> Citation:
            return Citation(path, bisect_right(lines, start), what, problem)

        for match in NAMED.finditer(plain):
            found = list(self.of_page(plain, match))
            taken.append((match.start(), found[-1][0]))
            for _, what, problem in found if len(found) == 1 else found[1:]:
                yield cited(match.start(), what, problem)
        for match in RULING.finditer(plain):
            if (len(numbers(match[2])) > 1) != match[1].lower().endswith("s"):
                yield cited(match.start(), match[0], "write `ruling 5`, `rulings 5, 16`")
                continue
            for number in numbers(match[2]):
                problem = "" if has_rule(self.rulings, number) else "no such ruling"
                yield cited(match.start(), f"ruling {number}", problem)
        for match in RULINGS_WORDS.finditer(plain):
            problem = "" if f"## {match[1][1:-1]}\n" in self.rulings else "no such section"
            yield cited(match.start(), match[0], problem)
        for match in TRAP.finditer(plain):
            for number in numbers(match[1] or match[2]):
                problem = "" if has_rule(self.pages["behaviour"].sections["7"], str(int(number))) else "no such trap"
                yield cited(match.start(), f"trap {number}", problem)
        for match in SEED.finditer(plain):
            for number in numbers(match[1]):
                yield cited(match.start(), f"seed {number}", "" if has_row(self.seeds, number) else "no such seed")
        for match in DOCS.finditer(plain):
            yield cited(match.start(), match[0], problem_of_document(match[1], match[2]))
        for match in NAMES_OF_ROWS.finditer(plain) if DECLARED.search(plain) else ():
            for row in re.findall("[mcrdle][0-9]{2}", match[0], re.IGNORECASE):
                there = has_row(self.pages["address-settings"].sections["8"], row.upper())
                yield cited(match.start(), row, "" if there else "no such row in address-settings page 8")
        for match in TEST_OF_ROW.finditer(plain) if not DECLARED.search(plain) else ():
            yield cited(match.start(), match[0], "rows of which page? Say `rows of address-settings page 8.N` above")
        own = self.pages.get(next((name for name, file in PAGES.items() if path == f"docs/reference/{file}"), ""))
        for match in IN_ITSELF.finditer(plain) if own else ():
            taken.append(match.span())
            for section in re.findall(SECTION, match["sections"] or match["of"]):
                yield cited(match.start(), match[0], "no such section" if own.lacks_section(section) else "")
        for pattern, problem in SLOPPY:
            for match in pattern.finditer(plain):
                if not any(start <= match.start() < end for start, end in taken):
                    yield cited(match.start(), match[0], problem)

    def of_page(self, plain: str, match: re.Match[str]) -> Iterator[tuple[int, str, str]]:
        """The page itself, then each thing in it that is cited: where it ends, what it is, what is wrong with it."""
        name, end = match[1], match.end()
        page = self.pages[name.lower()]
        yield end, f"{name} page", ""
        kind, section = "section", ""
        while follows := FOLLOWS.match(plain, end):
            what, kind = follows["id"], (follows["kind"] or kind).rstrip("s")
            if what in "abcde" and kind != "step":
                return
            if re.fullmatch(rf"{ROW}|FB[0-9]", what):
                kind = "row"
            elif re.fullmatch(SECTION, what) and "." in what:
                kind = "section"
            end = follows.end()
            if what[0] == '"':
                place = page.sections.get(section, page.text)
                problem = "" if what[1:-1].lower() in place.lower() else "no such words there"
            elif kind == "section":
                section = what
                problem = "no such section" if page.lacks_section(what) else ""
            else:
                place = page.sections.get(section, "" if section else page.text)
                there = has_row(place, what) if kind == "row" else has_rule(place, what)
                problem = "" if there else f"no such {kind} there"
            yield end, f"{name} page {section}, {kind} {what}" if kind != "section" else f"{name} page {what}", problem


def unwrapped(text: str) -> tuple[str, list[int]]:
    """The text in one line, without what begins the lines of comments, and where each of its lines begins there."""
    lines = [re.sub(r"^[ \t]*(?:#:? |//+ )?", "", line) for line in text.splitlines()]
    return " ".join(lines), list(accumulate((len(line) + 1 for line in lines), initial=0))


def problem_of_document(path: str, heading: str | None) -> str:
    """Whether a page of docs/ is there, and has the heading."""
    page = ROOT / path
    if not page.exists():
        return "no such page"
    titles = [match[2] for match in HEADING.finditer(page.read_text())]
    return "" if heading is None or any(heading[1:-1] in title for title in titles) else "no such heading"


def files() -> list[Path]:
    """All files whose citations count."""
    found: set[Path] = set()
    for place in PLACES:
        found.update(ROOT.glob(place) if "*" in place else (ROOT / place).rglob("*"))
    names = {str(path.relative_to(ROOT)): path for path in found if path.suffix in SUFFIXES and path.is_file()}
    return [path for name, path in sorted(names.items()) if not name.startswith(LEFT_OUT)]


def all_citations() -> list[Citation]:
    """Those of the whole tree."""
    resolver = Resolver()
    return [one for path in files() for one in resolver.citations(str(path.relative_to(ROOT)), path.read_text())]


if __name__ == "__main__":
    everything = all_citations()
    nowhere = [one for one in everything if one.problem]
    print(*nowhere, sep="\n")
    print(f"{len(everything)} citations, {len(nowhere)} lead nowhere")
