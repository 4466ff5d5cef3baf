"""The house keeps its own rules: imports, purity, packaging, words that must not be committed."""

import ast
import importlib
import re
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path

import pytest
from import_graph import (
    FRONT_DOOR,
    ROOMS,
    ROOT,
    at_run_time,
    circles,
    import_graph,
    imported,
    imports,
    packages,
    source_of,
    sources,
)

#: Room -> what it may import of ours (its own modules aside). Source: docs/architecture.md; ruling 2.
MAY_IMPORT = {
    "vendored": set(),
    "expressions": set(),
    "settings": {"expressions"},
    "engine": {"settings", "expressions"},
    "journal": {"settings", "engine"},
    "cluster": {"settings", "engine", "journal"},
    "amqp_frontend": {"settings", "engine"},
    "pipeline": {"settings", "engine", "journal", "expressions", "vendored"},
    "console": {"settings", "engine", "expressions", "vendored"},
    "interop": set(),
}

#: Rooms without a circle of imports at run time.
WITHOUT_CIRCLES = (
    "vendored",
    "expressions",
    "settings",
    "engine",
    "journal",
    "cluster",
    "amqp_frontend",
    "pipeline",
    "console",
    "interop",
    FRONT_DOOR,
)

#: The words of `engine/`: names, ids, small values. They know nothing above them.
WORDS = {"errors", "events", "options", "clock", "deadlines", "durability", "turn"}

#: What a room inside a room, or a module beside such rooms, may import of its siblings. Where one of a room's own rooms
#: has a row, all have one, and so has whatever a row names.
ARROWS = {
    "settings/faults": {"frozen"},
    "settings/frozen": {"slotted"},
    "settings/slotted": set(),
    "settings/lifetime": set(),
    "settings/loopback": set(),
    "settings/values": {"frozen"},
    "settings/profiles": {"frozen", "faults"},
    "settings/queue_types": {"frozen", "faults", "rows"},
    "settings/rows": {"frozen", "lifetime", "values", "profiles"},
    "settings/addresses": {"frozen", "faults", "lifetime", "values", "rows", "queue_types"},
    "settings/policies": {"frozen", "faults", "values", "rows", "addresses", "queue_types"},
    "settings/declared": {
        "frozen",
        "faults",
        "lifetime",
        "loopback",
        "values",
        "profiles",
        "rows",
        "addresses",
        "policies",
    },
    "settings/lint": {"faults", "values", "rows", "addresses", "policies", "declared", "queue_types"},
    "settings/files": {
        "frozen",
        "faults",
        "values",
        "rows",
        "addresses",
        "policies",
        "declared",
        "queue_types",
        "lint",
    },
    "settings/foreign": {"faults", "values", "rows", "addresses", "declared", "queue_types", "lint", "files"},
    "settings/loading": {"faults", "declared", "files", "foreign"},
    "settings/explain": {"values", "rows", "addresses", "policies", "declared", "queue_types"},
    "settings/shared_parts": {"faults", "values", "rows", "addresses", "declared"},
    "settings/difference": {"lifetime", "values", "rows", "addresses", "policies", "declared", "queue_types"},
    "settings/leases": {
        "frozen",
        "faults",
        "lifetime",
        "values",
        "rows",
        "queue_types",
        "declared",
        "files",
        "foreign",
    },
    **{f"engine/{word}": set() for word in WORDS},
    "engine/messages": WORDS,
    "engine/rules": WORDS | {"messages"},
    "engine/users": WORDS,
    "engine/exchanges": WORDS | {"messages"},
    "engine/stores": WORDS | {"messages"},
    "engine/delivery": WORDS | {"messages", "rules"},
    "engine/sites": {"clock", "deadlines"},
    "engine/context": WORDS | {"stores", "sites"},
    "engine/scopes": WORDS,
    "engine/flow": WORDS | {"messages", "rules", "context"},
    "engine/queues": WORDS | {"context", "messages", "rules", "exchanges", "stores", "delivery", "flow"},
    "engine/publishing": WORDS
    | {"context", "scopes", "messages", "rules", "users", "exchanges", "stores", "delivery", "flow", "queues"},
    "engine/leases": WORDS
    | {"context", "sites", "messages", "rules", "users", "stores", "delivery", "queues", "publishing", "invariants"},
    "engine/clients": WORDS
    | {"context", "messages", "rules", "users", "exchanges", "stores", "delivery", "flow", "queues", "publishing"},
    "engine/invariants": WORDS
    | {
        "context",
        "messages",
        "rules",
        "users",
        "exchanges",
        "stores",
        "delivery",
        "flow",
        "queues",
        "publishing",
        "clients",
    },
    "amqp_frontend/options": set(),
    "amqp_frontend/ended": set(),
    "amqp_frontend/wire": set(),
    "amqp_frontend/peer": {"ended", "wire"},
    "amqp_frontend/flow": {"ended", "wire", "peer"},
    "amqp_frontend/session": {"options", "ended", "wire", "peer", "flow"},
    "amqp_frontend/edge": {"options", "wire", "peer", "flow", "session"},
    "journal/format": set(),
    "journal/disk": {"format"},
    "journal/recovery": {"format", "disk"},
    "journal/appending": {"format", "disk", "recovery"},
    "journal/recording": {"format", "disk", "recovery", "appending"},
    "journal/copying": {"format", "disk"},
    "cluster/agreement": set(),
    "cluster/resolver": set(),
    "cluster/coordinator": {"agreement", "resolver"},
    "cluster/copying": {"agreement"},
    "cluster/link": {"agreement", "copying", "resolver"},
    "cluster/options": {"agreement", "link"},
    "cluster/node_process": {"agreement"},
    "cluster/registration": {"agreement", "coordinator"},
    "cluster/requests": {"agreement", "coordinator"},
    "cluster/reachability": {"link", "options"},
    "cluster/leading": {"agreement", "link", "options", "node_process"},
    "cluster/history": {"agreement"},
    "cluster/node_directory": {"copying"},
    "cluster/following": {"agreement", "copying", "link", "options", "node_directory"},
    "cluster/node": {
        *(
            "agreement",
            "coordinator",
            "copying",
            "link",
            "options",
            "node_process",
            "history",
            "reachability",
            "registration",
            "requests",
            "leading",
            "node_directory",
            "following",
        ),
    },
    "cluster/status": {"agreement", "link", "node"},
    "src/leveret/__init__": set(),
    "src/leveret/configured": set(),
    "src/leveret/operator": {"__init__", "configured"},
    "src/leveret/serving": {"__init__", "configured", "operator"},
    "src/leveret/demo": {"__init__"},
    "src/leveret/cli": {"__init__", "configured", "operator", "serving", "demo"},
    "src/leveret/testing": {"__init__", "configured", "operator", "serving"},
    "src/leveret/pytest_plugin": {"testing"},
    "interop/wire": set(),
    "interop/brokers": {"wire"},
    "interop/running": {"wire", "brokers"},
    "interop/suites": {"wire", "brokers", "running"},
    "interop/tools": {"wire", "brokers", "running", "suites"},
    "interop/flow": {"wire", "brokers", "running"},
    "interop/workers": {"wire", "brokers", "running"},
    "interop/takeovers": {"wire", "brokers", "running", "tools", "workers"},
    "interop/artemis": {"wire", "brokers"},
    "interop/differential": {"wire", "brokers"},
    "pipeline/schemas": set(),
    "pipeline/json_values": set(),
    "pipeline/progress": set(),
    "pipeline/selection": {"engines"},
    "pipeline/answers": {"schemas"},
    "pipeline/output": {"schemas", "answers"},
    "pipeline/report": set(),
    "pipeline/error_texts": set(),
    "pipeline/retries": {"progress"},
    "pipeline/reading": {"schemas", "json_values"},
    "pipeline/amqp": {"json_values"},
    "pipeline/lake": {"schemas", "progress", "retries", "error_texts", "reading"},
    "pipeline/engines": {"schemas", "error_texts"},
    "pipeline/jobs": {
        *("schemas", "progress", "retries", "error_texts", "selection", "answers", "engines", "amqp", "lake"),
        *("output", "report"),
    },
}

#: By which doors a room enters the engine: its façade, the journal also by what recovery has to put back, and `--debug`
#: by the invariants, which production does not import.
DOORS = {
    "console": {"engine", "engine.leases"},
    "journal": {"engine", "engine.state"},
    "cluster": {"engine"},
    "pipeline": {"engine"},
    FRONT_DOOR: {"engine", "engine.invariants", "engine.leases"},
}

#: Nothing in a pure room may know these.
IMPURE = {"trio", "socket", "time", "os", "random", "threading", "asyncio", "select", "secrets", "subprocess", "io"}


@pytest.mark.parametrize("room", [room for room in ROOMS if (ROOT / room).is_dir()])
def test_imports_point_one_way_and_are_relative_inside_rooms(room: str) -> None:
    """settings <- engine <- (journal, amqp_frontend) <- src/leveret, and no second copy of a module by another name."""
    for path in sources(room):
        depth = len(path.relative_to(ROOT / room).parts)
        for level, module in imports(path):
            top = module.split(".")[0]
            if level == 0:
                assert top not in {"leveret", *ROOMS}, f"{path.name}: import {module} must be relative"
            elif level == depth + 1:
                assert top in MAY_IMPORT[room], f"{path.name}: {room} must not import {module}"
            else:
                assert 1 <= level <= depth, f"{path.name}: import {module} leaves the package"


@pytest.mark.parametrize("room", DOORS)
def test_the_engine_is_entered_by_its_doors(room: str) -> None:
    """A module of the engine that is not a door may be moved or renamed without a look outside the engine."""
    for path in sources(room):
        assert past_the_doors(room, path.relative_to(ROOT / room), source_of(path).imports) == set(), path


def past_the_doors(room: str, name: Path, nodes: Iterable[ast.AST]) -> set[str]:
    """What a file of a room imports of the engine, but not from a door, or not one of a door's own names."""
    level = len(name.parts) + (room != FRONT_DOOR)  # of what stands beside the rooms
    found = set()
    for node in nodes:
        if not isinstance(node, ast.ImportFrom) or node.level != level:
            continue
        for alias in node.names:
            module = node.module or alias.name
            if module.split(".")[0] != "engine":
                continue
            if node.module not in DOORS[room]:
                found.add(module)
            elif alias.name not in names_at(module):
                found.add(f"{module}.{alias.name}")
    return found


def names_at(door: str) -> set[str]:
    """The names that a door has for others: those in its `__all__`, or else all that it imports."""
    module = importlib.import_module(f"leveret.{door}")
    nodes = ast.parse(Path(module.__file__ or "").read_text()).body
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return set(getattr(module, "__all__", imported))


def test_what_looks_past_the_doors_is_found() -> None:
    """The test above would see it."""
    text = "from ...engine.queues import deep\nfrom ...engine import Broker, broker\nfrom ...engine.state import Part"
    tree = ast.parse(f"{text}\nfrom ..engine import inner\nfrom ... import engine")
    assert past_the_doors("journal", Path("room/file.py"), ast.walk(tree)) == {
        "engine.queues",
        "engine.broker",
        "engine",
    }
    assert "engine.state" in past_the_doors("pipeline", Path("room/file.py"), ast.walk(tree))
    tree = ast.parse("from ..engine.queues import deep\ndef later():\n    from ..engine import Broker\n")
    assert past_the_doors(FRONT_DOOR, Path("room/file.py"), ast.walk(tree)) == {"engine.queues"}


@pytest.mark.parametrize("room", ["expressions", "settings", "engine"])
def test_pure_rooms_do_no_io(room: str) -> None:
    """Time and chance come in, effects go out: no sockets, clocks, tasks or randomness in these rooms."""
    for path in sources(room):
        assert not {module.split(".")[0] for level, module in imports(path) if level == 0} & IMPURE, path.name
        assert not source_of(path).defines_async and not source_of(path).waits, path.name
        assert not source_of(path).calls & {"open", "print", "input"}, path.name


def test_only_the_edge_waits() -> None:
    """In the frontend, `async` and sockets stand in one folder."""
    for path in sources("amqp_frontend"):
        if path.parent.name != "edge":
            assert not {module for _, module in imports(path)} & {"trio", "socket"}, path.name
            assert not source_of(path).defines_async and not source_of(path).waits, path.name


def test_only_three_files_of_the_console_wait() -> None:
    """Everything else that the console has is called by it, and is as easily tested as any function."""
    for path in sources("console"):
        if path.name not in {"server.py", "state.py", "connection.py"}:
            assert not {module for _, module in imports(path)} & {"trio", "socket", "h11"}, path.name
            assert not source_of(path).defines_async, path.name


def test_the_frontend_uses_the_facade_of_the_engine() -> None:
    """What `engine/__init__.py` names, and no room inside the engine."""
    for path in sources("amqp_frontend"):
        used = {module for _, module in imports(path) if module.split(".")[0] == "engine"}
        assert used <= ({"engine", "engine.leases"} if path.name == "leases.py" else {"engine"}), path.name


def test_the_frame_reader_knows_octets_only() -> None:
    """It runs, is tested and fuzzed without a broker: of the engine it has what octets mean, and nothing that acts.

    So has all of `wire/`; what is refused, and the values that its texts quote, are words, too.
    """
    meanings = {"FieldTable", "FieldTableError", "UnknownFieldTag", "decode_table", "encode_table"}
    meanings |= {"PropertySummary", "ContentError", "scan_properties", "Shape", "Shapes", "ContentColumns"}
    meanings.add("slotted")  # a decorator
    words = {"errors", "Field", "Reason"}
    for path in sources("amqp_frontend/wire"):
        for node in source_of(path).imports:
            if isinstance(node, ast.ImportFrom) and node.level == 3:
                known = meanings | words if path.stem == "replies" else meanings
                assert {alias.name for alias in node.names} <= known, path.name


def test_the_engine_knows_no_protocol() -> None:
    """Frames, reply codes and pamqp are the frontend's business."""
    for path in sources("engine"):
        assert "pamqp" not in {module.split(".")[0] for _, module in imports(path)}
        assert "reply_code" not in source_of(path).text


def test_pamqp_is_a_catalogue_and_nothing_else() -> None:
    """What decodes in 3.x hangs on octets that a peer may send: nothing of it is imported (docs/decisions/0002)."""
    for room in ("engine", "settings", "journal", "amqp_frontend", "src/leveret", "pipeline", "expressions"):
        for path in sources(room):
            for node in source_of(path).imports:
                if isinstance(node, ast.Import):
                    assert all(alias.name.partition(".")[0] != "pamqp" for alias in node.names), path
                elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pamqp":
                    names = {alias.name for alias in node.names}
                    assert node.module == "pamqp.commands" or names <= {"commands", "base"}, path
            if "amqp" in path.as_posix():
                assert not source_of(path).attributes & {"marshal", "unmarshal"}, path


@pytest.mark.parametrize("room", WITHOUT_CIRCLES)
def test_a_room_has_no_circle_of_imports(room: str) -> None:
    """Imports in functions count, too; those for annotations alone may point back."""
    assert circles(import_graph(room, attrgetter("at_run_time"))) == []


@pytest.mark.parametrize(
    "room", [room for room in WITHOUT_CIRCLES if room not in ("engine", "amqp_frontend", FRONT_DOOR)]
)
def test_annotations_make_no_circle_either(room: str) -> None:
    """In these rooms a module can be read with what it names, and nothing that names it."""
    assert circles(import_graph(room)) == []


def test_circles_are_found() -> None:
    """The tests above would see one."""
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a", "gone"}}
    assert circles(graph) == [("a", "b", "c"), ("d", "e")]
    tree = ast.parse("if TYPE_CHECKING:\n    from ..room import one, Other\ndef later():\n    from . import two\n")
    modules = {"room.one", "room.two", "room.__init__", "here.__init__", "here.two", "here.own"}
    assert imported(ast.walk(tree), ["here"], modules) == {"room.one", "room.__init__", "here.two"}
    assert imported(tree.body, ["here"], modules) == set()
    assert imported(at_run_time(tree), ["here"], modules) == {"here.two"}


def test_rooms_inside_rooms_know_each_other_one_way() -> None:
    """Arrows at run time only as the table has them, and the table itself has no circle."""
    for room in {row.rpartition("/")[0] for row in ARROWS}:
        rows = {row.removeprefix(f"{room}/"): known for row, known in ARROWS.items() if row.startswith(f"{room}/")}
        inner = {folder.removeprefix(f"{room}/").split("/")[0] for folder in packages(room) if folder != room}
        needed = inner | {name for known in rows.values() for name in known}
        assert needed <= rows.keys() <= needed | {path.stem for path in (ROOT / room).glob("*.py")}, room
        assert circles(rows) == [], room
        for module, others in import_graph(room, attrgetter("at_run_time")).items():
            name = module.split(".")[0]
            if name in rows:
                known = {other.split(".")[0] for other in others} - {name}
                assert known <= rows[name], f"{room}/{module}"


def test_every_room_is_found_as_a_package() -> None:
    """Each top-level room has its link in src/leveret; every folder of modules has the file that makes it a package."""
    rooms = [room for room in ROOMS if (ROOT / room).is_dir()]
    links = {path.name: path.resolve() for path in (ROOT / FRONT_DOOR).iterdir() if path.is_symlink()}
    assert links == {room: ROOT / room for room in rooms}
    folders = [folder for room in (*rooms, FRONT_DOOR) for folder in packages(room)]
    assert [folder for folder in folders if not (ROOT / folder / "__init__.py").is_file()] == []


def test_the_wheel_holds_the_tree(tmp_path: Path) -> None:
    """Every module of the rooms and the front door is in the wheel, and nothing else is."""
    import sys

    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    clone = tmp_path / "clone"
    for name in tracked:
        source = ROOT / name
        if name and source.exists():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, clone / name, follow_symlinks=False)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(clone)],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    (wheel,) = tmp_path.glob("*.whl")
    named = zipfile.ZipFile(wheel).namelist()
    assert "pyspark_leveret/__init__.py" in named, "where Spark looks for it"
    assert len(named) == len(set(named)), "behind a link, and again"
    packed = {name for name in named if name.startswith("leveret/")}
    expected = {
        f"leveret/{path.relative_to(clone / FRONT_DOOR)}"
        for folder in packages(FRONT_DOOR)
        for path in (clone / folder).glob("*")
        if path.is_file()
    }
    for folder in [folder for room in ROOMS if (ROOT / room).is_dir() for folder in packages(room)]:
        expected |= {
            f"leveret/{folder}/{path.name}"
            for path in (clone / folder).glob("*")
            if path.suffix in (".py", ".json", ".toml") or path.name == "py.typed"
        }
    clients = (clone / FRONT_DOOR / "testing/remote/clients").glob("*")
    expected |= {f"leveret/testing/remote/clients/{path.name}" for path in clients}
    data = [*(clone / "interop/drivers").rglob("*")]
    data += [one for name in ("scenarios", "leases") for one in (clone / "interop" / name).glob("*.toml")]
    data += [*(clone / "console/page").rglob("*"), *(clone / "console/dashboards").glob("*.json")]
    data += [one for one in (clone / "vendored").glob("*") if one.suffix != ".py"]
    data += [one for one in (clone / "pipeline/report").glob("*") if one.suffix in (".js", ".css")]
    expected |= {f"leveret/{path.relative_to(clone)}" for path in data if path.is_file()}
    assert packed == expected
    # And below the environment what its messages point to, and the unit.
    beside = {name.partition(".data/data/")[2] for name in named if ".data/data/" in name}
    pages = {f"share/doc/leveret/{path.relative_to(clone)}" for path in (clone / "docs").rglob("*.md")}
    assert pages <= beside and "lib/systemd/system/leveret.service" in beside
    (facts,) = (zipfile.ZipFile(wheel).read(name).decode() for name in named if name.endswith("/METADATA"))
    assert "Classifier: Framework :: Pytest" in facts and "Keywords: amqp" in facts


def test_every_page_that_the_code_names_is_there() -> None:
    """In a message, a help text or a comment."""
    named = {
        (path.relative_to(ROOT), page)
        for room in (*ROOMS, FRONT_DOOR)
        for path in (ROOT / room).rglob("*.py")
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())
    }
    assert len(named) > 30
    assert [(path, page) for path, page in named if not (ROOT / page).is_file()] == []


def test_no_machine_and_no_registry_is_named() -> None:
    """The repository speaks of the product alone: no host of a package registry, no path of somebody's machine."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    hosts = re.compile(
        r"pypi\.org|pythonhosted\.org|crates\.io/|registry\.npmjs|repo1?\.maven|proxy\.golang|deb\.debian"
    )
    homes = re.compile(r"(?<![\w.])/(work|root|farm)/[a-z]")
    for name in tracked:
        path = ROOT / name
        if not name or path.is_symlink() or not path.is_file() or path.name == "test_tidy.py":
            continue
        text = path.read_text(errors="ignore")
        assert not hosts.search(text), name
        assert not homes.search(text), name


def test_tests_do_not_sleep() -> None:
    """Time is virtual in tests, and waiting is for facts."""
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name != "test_tidy.py":
            assert not re.search(r"\b(time|trio|asyncio)\.sleep\(", path.read_text()), path.name


def test_an_extra_names_a_distribution_once() -> None:
    """Of two ranges one would be forgotten."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for needed in (project["dependencies"], *project["optional-dependencies"].values()):
        names = [re.split(r"[<>=!~; \[]", one)[0] for one in needed]
        assert sorted(names) == sorted(set(names))


def test_nothing_unfinished_is_left() -> None:
    """No stubs: what is there works."""
    for room in (*ROOMS, FRONT_DOOR):
        for path in (ROOT / room).rglob("*.py"):
            assert not re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text()), path.name


def test_entry_point_names_the_frontend() -> None:
    """The AMQP frontend is a plug-in like any other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["leveret.frontends"] == {
        "amqp": "leveret.amqp_frontend.edge.server:serve",
        "console": "leveret.console.server:serve",
    }
    assert "scripts" in project
