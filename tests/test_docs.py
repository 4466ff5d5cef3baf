"""Pages that are drawn from tables are what the tables say."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from import_graph import FRONT_DOOR, ROOMS, packages

from leveret.settings.declared import tables
from leveret.settings.leases.leased_settings import ELEMENTS, IN_COMMON
from leveret.settings.lifetime import WITHOUT_MEANING
from leveret.settings.rows.address_settings import SETTINGS
from leveret.settings.rows.broker_keys import KEYS
from leveret.settings.rows.queue_attributes import ATTRIBUTES

#: Tables of declarations.
ARRAYS = ("ADDRESS", "QUEUE", "LOGGED_TOPIC", "DIVERT", "VHOST", "POLICY", "USER", "PERMISSION", "WILDCARDS")

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("name", ["states", "configuration", "pipeline_tables"])
def test_drawn_pages_are_current(name: str) -> None:
    """Run docs/draw_NAME.py again when this fails."""
    assert (DOCS / f"{name.replace('_', '-')}.md").read_text() == _drawing(name).page() + "\n"


def _drawing(name: str) -> Any:
    """The module docs/draw_NAME.py."""
    return _module(DOCS / f"draw_{name}.py")


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_hostile_vector_has_a_test_that_exists() -> None:
    """Each row of the tables names tests, and they are there."""
    root = DOCS.parent
    rows = [line for line in (DOCS / "hostile-peers.md").read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| vector |")]
    assert len(rows) > 40
    for row in rows:
        named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", row)
        assert named, row
        for path, test in named:
            assert (root / path).exists(), path
            assert not test or f"def {test}(" in (root / path).read_text(), (path, test)


def test_every_key_has_one_plain_sentence() -> None:
    """It is short and ends with a stop."""
    for sentences in (
        *({name: key.help for name, key in keys.items()} for keys in KEYS.values()),
        {one.key: one.help for one in SETTINGS},
        {one.key: one.help for one in ATTRIBUTES},
        {one.key: one.help for one in (*ELEMENTS, *IN_COMMON)},
        *({row.key: row.help for row in getattr(tables, name)} for name in ARRAYS),
    ):
        for name, sentence in sentences.items():
            assert re.fullmatch(r"[A-Z`][^\n|]{10,130}\.", sentence), (name, sentence)


def test_no_key_about_sizes_pages_or_slow_consumers_waits_for_a_later_version() -> None:
    """Each has an effect, or stands in the table of those without meaning, with its reason (address-settings 3.3)."""
    rows = (DOCS / "configuration.md").read_text().splitlines()
    for name in ("size", "page", "disk", "global-max", "slow", "prefetch", "max-read"):
        waiting = [row for row in rows if row.startswith("|") and name in row.split("|")[1] and "*later*" in row]
        assert [row for row in waiting if "management" not in row] == []
    for field in SETTINGS:
        assert (field.acts is WITHOUT_MEANING) == bool(field.reason)
        assert not field.reason or re.fullmatch(r"[A-Z][^\n|]{10,130}\.", field.reason), field.key


def test_defaults_are_in_units_that_people_write() -> None:
    """No default on the page is a bare number of milliseconds or octets."""
    rows = [
        line.split(" | ") for line in (DOCS / "configuration.md").read_text().splitlines() if line.startswith("| `")
    ]
    defaults = {row[0]: row[1] for row in rows}
    assert defaults["| `consumer-timeout`"] == '`"30m"`'
    assert [row[1] for row in rows if row[0] == "| `memory`"] == ['`"256MiB"`', '`"64MiB"`']
    for name in ("heartbeat", "segment-size", "reserve", "handshake-timeout", "transaction-size", "page-size-bytes"):
        assert re.fullmatch(r'`"\d+(s|m|h|KiB|MiB|GiB)"`', defaults[f"| `{name}`"]), name


def test_the_changelog_is_drawn_from_every_fragment() -> None:
    """All sentences of the fragments are there, whatever their kind."""
    drawn = _drawing("changelog").page()
    for path in (DOCS.parent / "changelog.d").glob("[0-9]*.md"):
        for line in filter(None, path.read_text().splitlines()):
            assert f"- {line.replace('](../', '](')}" in drawn, path.name


def test_the_architecture_has_every_room_and_folder() -> None:
    """Each room has its line; each folder that holds modules its row, with the folders beside it that it may import."""
    page = (DOCS / "architecture.md").read_text()
    rooms = [room for room in ROOMS if (DOCS.parent / room).is_dir()]
    assert [room for room in rooms if not re.search(rf"(?m)^{room}/ ", page)] == []
    rows = dict(re.findall(r"(?m)^\| `([\w/]+)/` \|[^|]+\|(?: ([^|]+) \|)?$", page))
    folders = {folder for room in (*rooms, FRONT_DOOR) for folder in packages(room)} - {*rooms, FRONT_DOOR}
    assert rows.keys() == folders
    arrows = _module(Path(__file__).parent / "test_tidy.py").ARROWS
    for folder, cell in rows.items():
        room, _, name = folder.rpartition("/")
        beside = [row.rpartition("/")[2] for row in rows if row.rpartition("/")[0] == room]
        named = set(re.findall(r"`(\w+)`", cell))
        said = set(beside[: beside.index(name)]) - named if cell.startswith("all above") else named
        assert folder not in arrows or said == arrows[folder] & set(beside), folder


def test_every_path_that_the_architecture_names_is_there() -> None:
    """In full from the root, or below engine/ (a room of it); a bare file name is one of some room."""
    root = DOCS.parent
    named = set(re.findall(r"(?<![\w/*])[\w][\w/]*(?:\.py|/(?=[`\s]))", (DOCS / "architecture.md").read_text()))
    assert len(named) > 60
    rooms = ("engine", "amqp_frontend", "journal", "cluster", "settings", "expressions", "console", "src/leveret")
    bare = {path.name for room in rooms for path in (root / room).rglob("*.py")}
    for path in named:
        is_there = (root / path).exists() or (root / "engine" / path).exists()
        assert is_there or ("/" not in path and path in bare), path
