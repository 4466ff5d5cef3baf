"""Draw CHANGELOG.md from the fragments: `python docs/draw_changelog.py > CHANGELOG.md`, or `make changelog`."""

from pathlib import Path

FRAGMENTS = Path(__file__).resolve().parents[1] / "changelog.d"
#: A file for each release, VERSION.md, made by release.py.
RELEASED = FRAGMENTS / "released"
KINDS = ("added", "changed", "fixed", "removed")


def fragments(kind: str) -> list[str]:
    """The sentences of one kind, those of the newest numbers first."""
    paths = list(FRAGMENTS.glob(f"*.{kind}.md"))
    paths.sort(key=lambda path: (-int(path.name.split(".")[0]), path.name))
    return [line for path in paths for line in path.read_text().splitlines() if line.strip()]


def page() -> str:
    """The whole page. Links in fragments are relative to their directory, here to the root."""
    lines = [
        "# Changes",
        "",
        "Drawn from the fragments in `changelog.d/` by `make changelog`; do not edit it by hand.",
        "\n",
    ]
    sections = [section("## Unreleased"), *(path.read_text().rstrip("\n") for path in released())]
    return "\n".join(lines) + "\n\n".join(sections)


def section(heading: str) -> str:
    """What the fragments say, under a heading."""
    lines = [heading]
    for kind in KINDS:
        if found := fragments(kind):
            lines += ["", f"### {kind.capitalize()}", ""]
            lines += [f"- {line.replace('](../', '](')}" for line in found]
    return "\n".join(lines)


def released() -> list[Path]:
    """The releases, newest first."""
    return sorted(RELEASED.glob("*.md"), key=lambda path: [int(part) for part in path.stem.split(".")], reverse=True)


if __name__ == "__main__":
    print(page())
