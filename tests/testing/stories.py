"""The pages of docs/ followed word by word on a clean machine, and timed: `make stories`.

Each story has a new folder, an empty home and no package of its own: virtual environments, Node's and Go's modules and
Maven's repository are fetched anew. `pip install leveret` gets the wheel of this tree. Registries are needed. Writes
docs/stories.md with --out.
"""

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from followed_page import Done, follow, steps_of  # noqa: E402

#: What this machine needs to reach its registries; the rest of the environment stays outside.
_KEPT = re.compile(
    r"PIP_\w+|(HTTPS?|NO)_PROXY|NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|GOPROXY|GOFLAGS|JAVA_HOME", re.IGNORECASE
)
OLDER = ROOT / "tests" / "journal" / "older"
SYSTEM = ("/etc/leveret", "/var/lib/leveret", "/opt/leveret", "/opt/leveret-new")


@dataclass(frozen=True)
class Story:
    """`said`: what its last command prints."""

    name: str
    page: str
    section: str
    said: str
    programs: tuple[str, ...] = ()


STORIES = (
    Story("Celery", "testing-frameworks.md", "Celery", r"= 7 passed"),
    Story("FastStream", "testing-frameworks.md", "FastStream", r"= 1 passed"),
    Story("dramatiq", "testing-frameworks.md", "dramatiq", r"= 1 passed"),
    Story("taskiq", "testing-frameworks.md", "taskiq", r"= 1 passed"),
    Story("Django", "testing-web-applications.md", "Django", r"Ran 3 tests.*\n\nOK\n"),
    Story("FastAPI", "testing-web-applications.md", "FastAPI", r"= 4 passed"),
    Story("Node", "testing-node.md", "", r"# pass 4\n# fail 0\n", ("node", "npm")),
    Story("Go", "testing-go.md", "", r"ok  \tshop\t", ("go",)),
    Story("Java", "testing-java.md", "", r"Tests run: 4, Failures: 0, Errors: 0", ("mvn", "javac")),
    Story("an upgrade", "operations.md", "Stop, and upgrade", r"orders\b.*\b48\b"),
)


def older_wheel(folder: Path, commit: str) -> Path:
    """Of the broker that left a data directory."""
    source = folder / "older"
    source.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", folder / "older-wheel", source]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = (folder / "older-wheel").glob("*.whl")
    return wheel


def wheel_of(folder: Path) -> Path:
    """Of what is tracked, as the tree has it now."""
    source = folder / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name, follow_symlinks=False)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, source]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def clean(folder: Path, wheel: Path) -> dict[str, str]:
    """The environment of somebody who has just logged in: an empty home, this machine's programs, the wheel."""
    home = folder / "home"
    home.mkdir()
    if (npmrc := Path.home() / ".npmrc").exists():
        shutil.copy(npmrc, home)  # which registry, and whom it trusts
    constraint = folder / "constraint.txt"
    constraint.write_text(f"leveret=={wheel.name.split('-')[1]}\n")
    go = shutil.which("go")
    path = ["/usr/local/bin", "/usr/bin", "/bin", *([str(Path(go).parent)] if go else [])]
    kept = {name: value for name, value in os.environ.items() if _KEPT.fullmatch(name)}
    return {
        **kept,
        "HOME": str(home),
        "PATH": os.pathsep.join(path),
        "PIP_CONSTRAINT": str(constraint),
        "PIP_FIND_LINKS": f"{os.environ.get('PIP_FIND_LINKS', '')} {wheel.parent}".strip(),
        "MAVEN_OPTS": f"-Dmaven.repo.local={home}/.m2/repository",
        "LANG": "C.UTF-8",
    }


@contextmanager
def system(folder: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """An older broker at work: installed, with its data, a configuration, and what stands in for systemd."""
    opt, data, etc = folder / "opt/leveret", folder / "var/lib/leveret", folder / "etc/leveret"
    for place in (data, etc):
        place.mkdir(parents=True)
    left = sorted(OLDER.glob("*-stopped.tar.gz"))[-1]
    with tarfile.open(left) as archive:
        archive.extractall(data)
    subprocess.run([sys.executable, "-m", "venv", opt], check=True)
    older = older_wheel(folder, left.name.split("-")[3])
    unbound = {name: value for name, value in environment.items() if name != "PIP_CONSTRAINT"}
    subprocess.run([opt / "bin/pip", "install", "--quiet", older], env=unbound, check=True)
    toml = f'[broker]\nlisten = ["127.0.0.1:5672"]\ndata = "{data}"\n'
    (etc / "leveret.toml").write_text(toml)
    programs = folder / "programs"
    programs.mkdir()
    stand_in = programs / "systemctl"
    stand_in.write_text(
        f"#!/bin/bash\ncase $1 in\n"
        f"start) > {folder}/out\n"
        f"  {opt}/bin/leveret serve --config {etc}/leveret.toml >> {folder}/out 2>&1 &\n  echo $! > {folder}/pid\n"
        f"  until grep -q ready {folder}/out; do kill -0 $! || exit 1; sleep 0.1; done;;\n"
        f"stop) kill $(cat {folder}/pid); while kill -0 $(cat {folder}/pid) 2> /dev/null; do sleep 0.1; done;;\nesac\n"
    )
    stand_in.chmod(0o755)
    subprocess.run([stand_in, "start"], check=True, stdout=subprocess.DEVNULL)
    try:
        yield {**environment, "PATH": f"{programs}:{environment['PATH']}"}
    finally:
        os.kill(int((folder / "pid").read_text()), signal.SIGTERM)


def tell(story: Story, wheel: Path) -> list[Done]:
    """Follow it from nothing. Raises: AssertionError (what did not go as the page says)."""
    with tempfile.TemporaryDirectory(prefix="story-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        environment = clean(folder, wheel)
        project = folder / "project"
        project.mkdir()
        steps = steps_of(story.page, story.section)
        if story.page == "operations.md":
            moved = [(place, f"{folder}{place}") for place in SYSTEM]
            for place, ours in moved:
                steps = [type(one)(one.name, one.text.replace(place, ours), one.installs) for one in steps]
            (folder / "tmp").mkdir()
            with system(folder, environment) as environment:
                done = follow(steps, project, environment, installs=True)
        else:
            done = follow(steps, project, environment, installs=True)
        subprocess.run(["chmod", "-R", "u+w", folder], check=False)  # Go keeps its modules read-only
    assert re.search(story.said, done[-1].output, re.DOTALL), done[-1].output
    return done


def main() -> int:
    """Tell all stories, or those that are named; exit code 1 if one did not go as its page says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of stories, separated by commas")
    parser.add_argument("--out", type=Path, default=None, help="the page that is written")
    options = parser.parse_args()
    wanted = set(filter(None, options.only.split(",")))
    if unknown := wanted - {story.name for story in STORIES}:
        parser.error(f"no story {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in STORIES)}")
    rows, failed = [], False
    with tempfile.TemporaryDirectory(prefix="wheel-") as name:
        wheel = wheel_of(Path(name))
        for story in STORIES:
            missing = [program for program in story.programs if shutil.which(program) is None]
            if (wanted and story.name not in wanted) or missing:
                print(f"{story.name}: skipped{' without ' + ', '.join(missing) if missing else ''}", flush=True)
                continue
            try:
                done = tell(story, wheel)
            except (AssertionError, subprocess.SubprocessError) as error:
                print(f"{story.name}: FAILED\n{error}", flush=True)
                failed = True
                continue
            install = sum(one.seconds for one in done if one.installs)
            rest = sum(one.seconds for one in done if not one.installs)
            print(f"{story.name}: {len(done)} commands, {install:.1f} s to install, {rest:.1f} s the rest", flush=True)
            anchor = "#" + re.sub(r"[^\w -]", "", story.section).lower().replace(" ", "-") if story.section else ""
            link = f"[{story.page}]({story.page}{anchor})"
            rows.append(f"| {story.name} | {link} | {len(done)} | {install:.0f} s | {rest:.1f} s |")
    if options.out is not None and not failed:
        options.out.write_text(page(rows))
    return int(failed)


def page(rows: list[str]) -> str:
    """docs/stories.md."""
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {datetime.now(UTC).date()}"
    return (ROOT / "docs" / "stories.md").read_text().partition("<!-- figures -->")[0] + (
        f"<!-- figures -->\n{machine}, `make stories`, packages over the network:\n\n"
        "| story | page | commands | installing | the rest |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
