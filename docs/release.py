"""Make a release of this tree: `python docs/release.py VERSION`, then commit, tag it `vVERSION`, and `make dist`.

The fragments of the changelog become a section of their own, and the version is set wherever it is written.
"""

import re
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import draw_changelog

ROOT = Path(__file__).resolve().parents[1]
#: File -> the line in it that has the version.
VERSIONS = {"pyproject.toml": r'(?m)^version = "(.*)"$', "src/leveret/__init__.py": r'(?m)^__version__ = "(.*)"$'}


def release(version: str, day: date) -> None:
    """Everything but the commit. Raises: ValueError."""
    numbers = parsed(version)
    texts = {name: (ROOT / name).read_text() for name in VERSIONS}
    for name, pattern in VERSIONS.items():
        found = re.search(pattern, texts[name])
        if found is None:
            raise ValueError(f"{name} has no line with the version")
        if draw_changelog.released() and parsed(found[1]) >= numbers:
            raise ValueError(f"{version} is not above {found[1]}, the version of {name}")
    notes = draw_changelog.section(f"## {version} ({day})")
    if "\n" not in notes:
        raise ValueError("there is no fragment in changelog.d/: nothing has changed")
    for name, pattern in VERSIONS.items():
        text = re.sub(pattern, lambda match: match[0].replace(match[1], version), texts[name])
        (ROOT / name).write_text(text)
    draw_changelog.RELEASED.mkdir(exist_ok=True)
    (draw_changelog.RELEASED / f"{version}.md").write_text(notes + "\n")
    for kind in draw_changelog.KINDS:
        for path in draw_changelog.FRAGMENTS.glob(f"*.{kind}.md"):
            path.unlink()
    (ROOT / "CHANGELOG.md").write_text(draw_changelog.page() + "\n")


def parsed(version: str) -> list[int]:
    """The numbers of a version. Raises: ValueError."""
    if re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version) is None:
        raise ValueError(f"{version!r} is not a version such as 0.2.0")
    return [int(part) for part in version.split(".")]


if __name__ == "__main__":
    try:
        release(sys.argv[1], datetime.now(UTC).date())
    except (IndexError, ValueError) as error:
        sys.exit(f"release: {error}; usage: python docs/release.py VERSION")
