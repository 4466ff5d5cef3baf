"""Citations lead somewhere: every section, row, rule, trap, ruling and page that code, tests and docs name is there."""

import pytest
from citations import ROOT, Resolver, all_citations


@pytest.fixture(scope="module")
def resolver() -> Resolver:
    """With the pages of the tree."""
    return Resolver()


def test_every_citation_leads_somewhere() -> None:
    """docs/reference/README.md has the forms."""
    everything = all_citations()
    assert len(everything) > 800, "the forms are no longer found"
    nowhere = [str(one) for one in everything if one.problem]
    assert not nowhere, "\n".join(nowhere)


@pytest.mark.parametrize(
    "text",
    [
        "Source: behaviour page 2.4, 3.1.",
        "Source: behaviour page 1.1 to 1.13, whatever stands behind.",
        "the table of address-settings page 5.1 and 6.7 says so",
        "Source: queues page C.5 and F; Spark page 4.",
        "Source: performance page 4, rules 2, 3, 6.",
        "Source: address-settings page 3.4, 4.5 (rule 13); ruling 9",
        "Source: address-settings page 4.5, rules 1 and 3, and 5.3.",
        "(address-settings page 1.3, step 4)",
        "address-settings page 2.2, steps a to e",
        "address-settings page 2.3, rows 28 to 36",
        "address-settings page 8.5, row L19",
        "queues page F.8, rows FB1, FB2",
        'behaviour page 3.9, "headers"',
        'Source: interfaces page, "Configuration\n    keys"; address-settings page 6.5.',
        '#: Their answers wait (docs/journal-format.md, "The\n#: crash model")',
        "Source: rulings 3 to 6; rulings 4, 21 and 2a.",
        'Source: rulings, "Events"',
        "(trap 14) and traps 3, 5",
        "@trap(14)\ndef test_heartbeats() -> None:",
        "seed 004, seeds 000 and 003",
        '"""The rows of address-settings page 8.3."""\ndef test_r06_r07_x(): ...\nids = ["r08", "d04: both"]  # R31',
        "Source: AMQP 0-9-1 4.2.5; haproxy's doc/proxy-protocol.txt, sections 2.1 and 2.2.",
    ],
)
def test_forms_that_lead_somewhere(resolver: Resolver, text: str) -> None:
    """Each form of the README, also over the end of a line."""
    assert [str(one) for one in resolver.citations("engine/planted.py", text) if one.problem] == []


@pytest.mark.parametrize(
    "text, problem",
    [
        ("behaviour page 2.44", "no such section"),
        ("behaviour page 2.4, 9.9", "no such section"),
        ("behaviour page 2.4 to 2.99", "no such section"),
        ("queues page F.99", "no such section"),
        ("Spark page 7", "no such section"),
        ("performance page 4, rule 99", "no such rule there"),
        ("address-settings page 1.3, steps 1 and 9", "no such step there"),
        ("address-settings page 8.5, row L99", "no such row there"),
        ("address-settings page 8.5, row R05", "no such row there"),
        ("address-settings page 2.3, rows 28 to 99", "no such row there"),
        ('behaviour page 3.9, "no such words"', "no such words there"),
        ("ruling 77", "no such ruling"),
        ("rulings 5, 77", "no such ruling"),
        ("rulings 5", "write `ruling 5`, `rulings 5, 16`"),
        ("ruling 5, 16", "write `ruling 5`, `rulings 5, 16`"),
        ('rulings, "Weather"', "no such section"),
        ("(trap 99)", "no such trap"),
        ("@trap(99)", "no such trap"),
        ("seed 009", "no such seed"),
        ("docs/no-such.md", "no such page"),
        ('docs/architecture.md, "No such heading"', "no such heading"),
        ("rows of address-settings page 8.3\ndef test_r99_x(): ...", "no such row in address-settings page 8"),
        ('rows of address-settings page 8.3\nids = ["r99"]', "no such row in address-settings page 8"),
        ("def test_r05_x(): ...", "rows of which page? Say `rows of address-settings page 8.N` above"),
        ("row L19 of it", "rows of which page?"),
        ("rows 28 to 36 of 2.3", "rows of which page?"),
        ("(page 4.5, rule 6)", "which page?"),
        ("cursors page E.5", "which page?"),
        ("section 2.4 says", "which page? (PAGE page N.N)"),
        ("spark.md 4", "cite the page by its name"),
        ("Source: users page", "no such page"),
        ("Source: issue on the journal", "not a page of the repository"),
    ],
)
def test_wrong_ones_are_found(resolver: Resolver, text: str, problem: str) -> None:
    """One wrong citation of each kind, in the third line of a file."""
    planted = f'"""Planted.\n\n{text}\n"""\n'
    found = {str(one) for one in resolver.citations("engine/planted.py", planted) if one.problem}
    assert len(found) == 1
    line = 4 if text.startswith("rows of address-settings page 8.3\n") else 3
    (said,) = found
    assert said.startswith(f"engine/planted.py:{line}: ") and said.endswith(f": {problem}")


@pytest.mark.parametrize("text, problem", [("see section 8.4", ""), ("section 99", "no such section")])
def test_a_page_names_its_own_parts(resolver: Resolver, text: str, problem: str) -> None:
    """Without its name."""
    (one,) = resolver.citations("docs/reference/management.md", text)
    assert one.problem == problem


def test_every_page_of_the_reference_is_in_its_table() -> None:
    """docs/reference/README.md has a line for each."""
    pages = {path.name for path in (ROOT / "docs" / "reference").glob("*.md")} - {"README.md"}
    table = (ROOT / "docs" / "reference" / "README.md").read_text()
    assert {page for page in pages if f"\n| [{page}]({page}) |" not in table} == set()
