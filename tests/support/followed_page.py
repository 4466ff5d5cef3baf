"""A page of docs/ followed word by word: its files are written, its commands are run, in the order of the page.

A block whose first line is a comment with a path is a file. A block of the language `sh` is commands, a line each;
with the word `install` behind it they fetch packages, and are for whoever is allowed to.
"""

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
_FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"(?:#|//|<!--) ([\w./-]+\.\w+)(?: -->)?\n")
_TIMEOUT_S = 600


@dataclass(frozen=True)
class Step:
    """A file with its text, or a command (`name` is empty). `installs`: it fetches packages."""

    name: str
    text: str
    installs: bool = False


@dataclass(frozen=True)
class Done:
    """A command that was run: how long it took, what it printed."""

    command: str
    installs: bool
    seconds: float
    output: str


def steps_of(page: str, section: str = "") -> list[Step]:
    """Of a page, or of one of its sections (`## section`). Raises: ValueError (there is none)."""
    text = (DOCS / page).read_text()
    if section:
        found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
        if found is None:
            raise ValueError(f"{page} has no section {section}")
        text = found[1]
    return [step for fence in _FENCE.finditer(text) for step in _steps(fence[1], fence[2].split(), fence[3])]


def _steps(language: str, words: list[str], text: str) -> Iterator[Step]:
    name = _NAME.match(text)
    if name is not None:
        yield Step(name[1], text)
    elif language == "sh":
        yield from (Step("", line, "install" in words) for line in text.replace("\\\n", "").splitlines())


def follow(steps: list[Step], folder: Path, environment: Mapping[str, str], *, installs: bool) -> list[Done]:
    """Do as a page says, in one shell session. Raises: AssertionError with what a command printed that failed.

    `installs`: also what fetches packages; without it `environment` has to have what they would have brought.
    """
    done = []
    kept = folder / ".session"
    kept.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()))
    for step in steps:
        if step.name:
            (folder / step.name).parent.mkdir(parents=True, exist_ok=True)
            (folder / step.name).write_text(step.text)
        elif installs or not step.installs:
            done.append(_run(step, folder, kept))
    kept.unlink()
    return done


def _run(step: Step, folder: Path, kept: Path) -> Done:
    script = f". {shlex.quote(str(kept))}\n{step.text}\nstatus=$?\nexport -p > {shlex.quote(str(kept))}\nexit $status\n"
    begin = time.monotonic()
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert ran.returncode == 0, f"$ {step.text}\n{ran.stdout}"
    return Done(step.text, step.installs, time.monotonic() - begin, ran.stdout)
