"""The facts that `leveret --version` prints: code, interpreter and dependencies."""

import hashlib
import os
import platform
import sys
import sysconfig
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from .. import __version__

#: Dependencies to list, if they are installed.
DISTRIBUTIONS = ("trio", "pamqp", "numpy", "pyarrow", "pyspark")
#: Rooms of the distribution that a broker imports, and those that it does not.
ROOMS = ("engine", "expressions", "settings", "journal", "amqp_frontend", "cluster", "console", "vendored")
NOT_OF_THE_BROKER = ("interop", "pipeline")


def build_facts() -> str:
    """The lines; the first is `leveret VERSION` alone."""
    lines = [f"leveret {__version__}", f"code {_digest()}"]
    build = "profile-guided" if "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "") else "plain"
    lines.append(f"{platform.python_implementation()} {platform.python_version()} ({build} build)")
    lines.append(f"{platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} cores")
    found = []
    for name in DISTRIBUTIONS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    lines.append(", ".join(found))
    if where := pages():
        lines.append(f"pages in {where}")
    return "\n".join(lines)


def pages() -> Path | None:
    """The directory of the pages that messages name (docs/...), of an installed wheel or of a clone; None: neither."""
    clone = next((parent for parent in Path(__file__).parents if (parent / "pyproject.toml").is_file()), None)
    folders = [Path(sysconfig.get_path("data")) / "share" / "doc" / "leveret", *((clone,) if clone else ())]
    return next((folder for folder in reversed(folders) if (folder / "docs" / "installing.md").is_file()), None)


def _digest() -> str:
    """A short digest of all modules of a broker: equal digests mean equal code."""
    digest, count = hashlib.sha256(), 0
    for label, folder in sorted(_folders().items()):
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder)
            if label or name.parts[0] not in (*ROOMS, *NOT_OF_THE_BROKER):
                digest.update(f"{label}/{name.as_posix()}\0".encode() + path.read_bytes() + b"\0")
                count += 1
    return f"{digest.hexdigest()[:12]} ({count} files)"


def _folders() -> dict[str, Path]:
    """Room -> its folder; "": the package itself. In a clone the rooms are outside the package's folder."""
    home = Path(sys.modules[__package__.partition(".")[0]].__file__ or "").parent
    specs = {room: find_spec(f"{home.name}.{room}") for room in ROOMS}
    rooms = {room: Path(spec.origin).parent for room, spec in specs.items() if spec is not None and spec.origin}
    return {"": home, **rooms}
