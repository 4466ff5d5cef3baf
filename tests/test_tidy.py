"""The house keeps its own rules: imports, purity, packaging, words that must not be committed."""

import ast
import re
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("settings", "engine", "journal", "amqp_frontend", "pipeline", "console", "interop")
FRONT_DOOR = "src/leveret"
#: Rooms are flat but for these: one job of the pipeline, one module.
NESTED = ("pipeline/jobs", "interop/differential", "interop/artemis")

#: Room -> what it may import of ours (its own modules aside). Source: architecture page, rulings 2.
MAY_IMPORT = {
    "settings": set(),
    "engine": {"settings"},
    "journal": {"settings", "engine"},
    "amqp_frontend": {"settings", "engine"},
    "pipeline": {"settings", "engine", "journal"},
    "console": {"settings", "engine", "journal"},
    "interop": set(),
}

#: Nothing in a pure room may know these.
IMPURE = {"trio", "socket", "time", "os", "random", "threading", "asyncio", "select", "secrets", "subprocess", "io"}


def sources(room: str) -> list[Path]:
    """The modules of a room."""
    nested = [path for folder in NESTED if folder.startswith(f"{room}/") for path in (ROOT / folder).glob("*.py")]
    return sorted([*(ROOT / room).glob("*.py"), *nested])


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(level, module) of every import of a file, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ((node.level, name) for name in names if name)


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


@pytest.mark.parametrize("room", ["settings", "engine"])
def test_pure_rooms_do_no_io(room: str) -> None:
    """Time and chance come in, effects go out: no sockets, clocks, tasks or randomness in settings and engine."""
    for path in sources(room):
        assert not {module.split(".")[0] for level, module in imports(path) if level == 0} & IMPURE, path.name
        tree = ast.parse(path.read_text())
        assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(tree)), path.name
        calls = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & {"open", "print", "input"}, path.name


def test_only_the_server_waits() -> None:
    """In the frontend, `async` and sockets stand in server.py alone."""
    for path in sources("amqp_frontend"):
        if path.name != "server.py":
            assert not {module for _, module in imports(path)} & {"trio", "socket"}, path.name
            tree = ast.parse(path.read_text())
            assert not any(isinstance(node, ast.AsyncFunctionDef) for node in ast.walk(tree)), path.name


def test_the_engine_knows_no_protocol() -> None:
    """Frames, reply codes and pamqp are the frontend's business."""
    for path in sources("engine"):
        assert "pamqp" not in {module.split(".")[0] for _, module in imports(path)}
        assert "reply_code" not in path.read_text()


def test_no_two_modules_of_ours_import_each_other_at_import_time() -> None:
    """A room's modules form layers: top-level imports have no cycles."""
    for room in ("settings", "engine", "journal", "amqp_frontend"):
        graph: dict[str, set[str]] = {}
        for path in sources(room):
            tree = ast.parse(path.read_text())
            top_level = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1]
            graph[path.stem] = {node.module for node in top_level if node.module}
        done: set[str] = set()

        def visit(name: str, path: tuple[str, ...], graph: dict[str, set[str]] = graph, done: set[str] = done) -> None:
            assert name not in path, f"import cycle: {' -> '.join((*path, name))}"
            if name not in done:
                for other in graph.get(name, ()):
                    visit(other, (*path, name))
                done.add(name)

        for name in graph:
            visit(name, ())


def test_every_room_is_packaged() -> None:
    """A nested package that pyproject does not list is silently left out of the wheel."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = [room for room in ROOMS if (ROOT / room).is_dir()]
    nested_rooms = {f"leveret.{folder.replace('/', '.')}" for folder in NESTED}
    assert (
        set(tool["packages"]) == {"leveret", "leveret.testing", *(f"leveret.{room}" for room in rooms)} | nested_rooms
    )
    for room in rooms:
        assert tool["package-dir"][f"leveret.{room}"] == room
        assert (ROOT / FRONT_DOOR / room).resolve() == ROOT / room
        nested = [path for path in (ROOT / room).iterdir() if path.is_dir() and any(path.glob("*.py"))]
        assert {str(path.relative_to(ROOT)) for path in nested} <= set(NESTED), "rooms are flat"


def test_the_wheel_holds_the_tree(tmp_path: Path) -> None:
    """Every module of the rooms and the front door is in the wheel, and nothing else is."""
    import sys

    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    clone = tmp_path / "clone"
    for name in tracked:
        source = ROOT / name
        if name and source.is_file() and not source.is_symlink():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes(source.read_bytes())
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(clone)],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("leveret/")}
    expected = {
        f"leveret/{path.relative_to(clone / FRONT_DOOR)}"
        for folder in (clone / FRONT_DOOR, clone / FRONT_DOOR / "testing")
        for path in folder.glob("*")
        if path.is_file()
    }
    for room in (*ROOMS, *NESTED):
        expected |= {
            f"leveret/{room}/{path.name}"
            for path in (clone / room).glob("*")
            if path.suffix in (".py", ".json", ".toml") or path.name == "py.typed"
        }
    data = [*(clone / "interop/scenarios").glob("*.toml"), *(clone / "interop/drivers").rglob("*")]
    expected |= {f"leveret/{path.relative_to(clone)}" for path in data if path.is_file()}
    assert packed == expected


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


def test_nothing_unfinished_is_left() -> None:
    """No stubs: what is there works."""
    for room in (*ROOMS, FRONT_DOOR):
        for path in (ROOT / room).glob("*.py"):
            assert not re.search(r"\b(TODO|FIXME|XXX)\b", path.read_text()), path.name


def test_entry_point_names_the_frontend() -> None:
    """The AMQP frontend is a plug-in like any other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["leveret.frontends"] == {"amqp": "leveret.amqp_frontend.server:serve"}
    assert "scripts" in project
