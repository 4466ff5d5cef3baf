"""Pages for applications of several kinds, followed word by word where what they need is installed.

`make frameworks` installs the Python packages, and lets the pages for other languages fetch theirs.
"""

import ast
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from followed_page import follow, steps_of

#: Page, section -> what Python has to have installed, programs of the machine, what the last command prints.
PAGES = {
    ("testing-frameworks.md", "Celery"): (("celery",), (), r"= 7 passed"),
    ("testing-frameworks.md", "dramatiq"): (("dramatiq",), (), r"= 1 passed"),
    ("testing-frameworks.md", "FastStream"): (("faststream", "pytest_asyncio"), (), r"= 1 passed"),
    ("testing-frameworks.md", "taskiq"): (("taskiq_aio_pika", "pytest_asyncio"), (), r"= 1 passed"),
    ("testing-frameworks.md", "trio"): (("serena", "trio_asyncio", "pytest_trio"), (), r"= 2 passed"),
    ("testing-web-applications.md", "Django"): (("django", "celery"), (), r"Ran 3 tests.*\n\nOK\n"),
    ("testing-web-applications.md", "FastAPI"): (("fastapi", "httpx", "aio_pika"), (), r"= 4 passed"),
    ("from-testcontainers.md", ""): (("pytest_timeout", "pika"), (), r"= 2 passed"),
    ("testing-node.md", ""): ((), ("node", "npm"), r"# pass 4\n# fail 0\n"),
    ("testing-go.md", ""): ((), ("go",), r"ok  \tshop\t"),
    ("testing-java.md", ""): ((), ("mvn", "javac"), r"Tests run: 4, Failures: 0, Errors: 0"),
}
#: Installs Python packages: here they are there.
_PYTHON_INSTALL = re.compile(r"python3 -m venv|\S*pip install|export PATH=|export LEVERET=")


def environment(folder: Path) -> dict[str, str]:
    """One in which `leveret` is this one, and `python` the one that runs this."""
    programs = folder / "programs"
    programs.mkdir()
    for name, what in (("leveret", "-m leveret"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {what} "$@"\n')
        (programs / name).chmod(0o755)
    path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
    kept = {name: os.environ[name] for name in ("HOME", "GOFLAGS", "GOPROXY", "JAVA_HOME") if name in os.environ}
    return {**kept, "PATH": path, "LEVERET": str(programs / "leveret")}


@pytest.mark.parametrize(("page", "section"), PAGES)
def test_its_files_are_whole(page: str, section: str) -> None:
    """Python's can be compiled; each is used by a command; there is something to do."""
    steps = steps_of(page, section)
    for step in steps:
        if step.name.endswith(".py"):
            ast.parse(step.text, step.name)
    assert sum(not step.name for step in steps) >= 2 and sum(bool(step.name) for step in steps) >= 2


@pytest.mark.parametrize(("page", "section"), PAGES)
def test_it_does_what_it_says(page: str, section: str, tmp_path: Path) -> None:
    """Its commands succeed, and its tests pass."""
    modules, programs, said = PAGES[page, section]
    missing = [name for name in modules if find_spec(name) is None]
    missing += [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} (make frameworks)")
    if programs and os.environ.get("LEVERET_STORIES") is None:
        pytest.skip("fetches packages (make frameworks)")
    steps = [step for step in steps_of(page, section) if not _PYTHON_INSTALL.match(step.text)]
    project = tmp_path / "project"
    project.mkdir()
    done = follow(steps, project, environment(tmp_path), installs=True)
    assert re.search(said, done[-1].output, re.DOTALL), done[-1].output
