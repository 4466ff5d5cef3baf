"""The README does what it says: its two examples run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import leveret_serve
from desk import VirtualDesk

from leveret.settings import load_configuration

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("library", ["pika", "aio_pika"])
def test_examples_run(tmp_path: Path, library: str) -> None:
    """Copied from the page, with only the port changed."""
    (source,) = [block for block in _python() if "hello, hare" in block and re.search(rf"\b{library}\b", block)]
    with leveret_serve(tmp_path) as broker:
        source = source.replace(":5672/", f":{broker.port}/")
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "hello, hare\n"


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    """As it stands; the plugin comes with the package."""
    source = _python()[0]
    assert source.startswith("# test_orders.py\n")
    (tmp_path / "test_orders.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_orders.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert "1 passed" in done.stdout, done.stdout


def _python() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_what_a_first_look_needs_is_on_the_first_page() -> None:
    """What it is, the test, ten lines, the small broker: in this order, and within sixty lines."""
    lines = (ROOT / "README.md").read_text().splitlines()
    headings = [(number, line) for number, line in enumerate(lines, 1) if line.startswith("## ")]
    assert [line for _, line in headings[:3]] == ["## In your tests", "## Ten lines", "## A small real broker"]
    assert headings[2][0] <= 60


def test_pages_that_install_it_say_what_to_do_until_there_is_a_release() -> None:
    """Each page with `pip install ... leveret` leads to docs/installing.md."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    installs = re.compile(r"pipx? install[^`\n]*\bleveret\b(?!/)|pip install \.")
    found = [page for page in pages if page.name not in ("CHANGELOG.md", "installing.md")]
    found = [page for page in found if installs.search(page.read_text())]
    assert len(found) > 10
    assert [page.name for page in found if "installing.md)" not in page.read_text()] == []


def test_the_top_is_the_two_commands() -> None:
    """Read from the top: make serve, make test."""
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if line.strip()]
    assert lines[2].startswith("make serve") and lines[3].startswith("make test")


def test_pages_that_are_linked_exist() -> None:
    """No dead links inside the repository: in pages at its root, of docs/ and of results, and in the fragments.

    Notes of a release are a part of CHANGELOG.md: their links begin at the root.
    """
    folders = [ROOT / folder for folder in ("docs", "changelog.d", "benchmarks/results")]
    for page in [*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]:
        folder = ROOT if page.parent.name == "released" else page.parent
        words = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)  # code has no links
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", words):
            assert (folder / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize(
    "page", ["README.md", "docs/from-rabbitmq.md", "docs/from-artemis.md", "docs/from-activemq.md", "docs/from-amps.md"]
)
def test_configurations_on_the_pages_load(page: str) -> None:
    """Every block of TOML or XML is one that `leveret check` calls right."""
    blocks = re.findall(r"```(?:toml|xml)\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        _, faults = load_configuration([(page, block)])
        assert not faults, faults


def test_the_story_of_the_readme() -> None:
    """nack: after 1 s, 2 s, 4 s, then in `failed`, which nobody declared."""
    (story,) = (
        block
        for block in re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        if "redelivery-delay" in block
    )
    desk = VirtualDesk(story)
    desk.declare("jobs.mail")
    desk.publish("m", key="jobs.mail")
    for wait_ms in (1000, 2000, 4000):
        desk.nack(desk.must_get("jobs.mail"))
        desk.advance_ms(wait_ms - 1)
        assert desk.get("jobs.mail") is None
        desk.advance_ms(1)
    desk.nack(desk.must_get("jobs.mail"))
    assert desk.must_get("failed").headers["_AMQ_ORIG_QUEUE"] == "jobs.mail"
