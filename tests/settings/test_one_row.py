"""A setting is one row: added to a copy of the tables, it is read, resolved, explained, compared and documented."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Table -> the line before which the row is put, and the row.
ROWS = {
    "address_settings": (
        "    # -- consumers, cluster, management\n",
        '    toy_delay_ms: int = setting(DELAY, 7, ARRIVAL, bean="toyName", help="How long a toy waits.")\n',
    ),
    "broker_keys": (
        "    product: str = ",
        '    toy_size: int = setting(BYTES, 2048, LIVE, help="Octets of toys.", is_foreign=True)\n',
    ),
    "queue_attributes": (
        '    attribute("filter", ',
        '    attribute("toy-delay", "toy_delay_ms", help="How long a toy waits here."),\n',
    ),
}

SCRIPT = """
import draw_configuration
from leveret.settings import load_configuration
from leveret.settings.difference import differences
from leveret.settings.explain import explain

def load(text):
    configuration, faults = load_configuration([("f", text)])
    assert not faults and not configuration.warnings, (faults, configuration.warnings)
    return configuration

toml = load("[broker]\\ntoy-size = '3KiB'\\n[[address-setting]]\\nmatch = 'a.#'\\ntoy-delay = '5s'\\n"
            "[[queue]]\\nname = 'a.q'\\ntoy-delay = 9")
xml = load("<core><toy-size>3K</toy-size><address-settings><address-setting match='a.#'><toy-delay>5000</toy-delay>"
           "</address-setting></address-settings></core>")
beans = load('toySize=3K\\naddressSettings."a.#".toyDelay=5000')
other = load('toySize=3K\\naddressSettings."a.#".toyName=5000')
for one in (toml, xml, beans, other):
    assert (one.broker.toy_size, one.repository.resolve("a.b").toy_delay_ms) == (3072, 5000)
assert (load("").broker.toy_size, load("").repository.resolve("a.b").toy_delay_ms) == (2048, 7)
rows = {row.name: (row.value, row.rule) for row in explain(toml, "a.b")[0].rows}
assert rows["toy-delay"] == (5000, "f:5: match 'a.#'"), rows["toy-delay"]
rows = {row.name: (row.value, row.rule) for row in explain(toml, "a.q")[0].rows}
assert rows["toy-delay"] == (9, "f:8: queue 'a.q' (x-toy-delay)"), rows["toy-delay"]
said = list(map(str, differences(xml, load("[[address-setting]]\\nmatch = 'a.#'\\ntoy-delay = 1"))))
assert said == [
    "[broker] toy-size: 3072 -> 2048 (at once)",
    "match 'a.#': toy-delay: 5000 -> 1 (messages that arrive later)",
], said
faults = load_configuration([("f", "[[address-setting]]\\nmatch = '#'\\ntoy-dela = 1\\ntoy-delay = -1")])[1]
assert "did you mean 'toy-delay'?" in str(faults[0]) and "expected a duration" in str(faults[1]), faults
page = draw_configuration.page()
assert '| `toy-delay` | `"7ms"` | messages that arrive later | How long a toy waits. |' in page
assert '| `toy-size` | `"2KiB"` | at once | Octets of toys. |' in page
assert '| `toy-delay` |  | How long a toy waits here. |' in page
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The room of settings, with a row more in each of these tables."""
    package = tmp_path / "leveret"
    for room in ("settings", "expressions"):
        shutil.copytree(ROOT / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "src/leveret/__init__.py", package)
    shutil.copy(ROOT / "docs/draw_configuration.py", tmp_path)
    for table, (before, row) in ROWS.items():
        path = package / "settings" / "rows" / f"{table}.py"
        text = path.read_text()
        assert text.count(before) == 1, table
        path.write_text(text.replace(before, row + before))
    return tmp_path


def test_a_setting_is_one_row(copy: Path) -> None:
    """In files of three formats, by both its names; as an attribute of a queue; in reports and on the page."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
