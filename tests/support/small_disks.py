"""File systems of a test's own, which can be full or hang: needs root and mounts."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

MIB = 1024 * 1024


def _run(*command: object) -> None:
    subprocess.run([str(one) for one in command], check=True, capture_output=True)


@cache
def why_no_disks() -> str:
    """Why this machine has none for tests; empty: it has."""
    with TemporaryDirectory() as place:
        try:
            with loop_disk(Path(place), "probe"):
                return ""
        except (OSError, subprocess.CalledProcessError) as error:
            return f"needs root, mounts and loop devices: {error}"


class LoopDisk:
    """An ext4 of 128 MiB in a file. `path`: where it is mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def freeze(self) -> None:
        """Whatever is written hangs."""
        _run("fsfreeze", "-f", self.path)

    def thaw(self) -> None:
        """It goes on."""
        _run("fsfreeze", "-u", self.path)

    def fill(self) -> None:
        """Leave no room."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink()


@contextmanager
def loop_disk(directory: Path, name: str) -> Iterator[LoopDisk]:
    """Mounted in the directory, and unmounted at the end. Raises: OSError, CalledProcessError."""
    image, mounted = directory / f"{name}.img", directory / f"{name}.disk"
    with image.open("wb") as file:
        file.truncate(128 * MIB)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", image)
    mounted.mkdir()
    _run("mount", "-o", "loop", image, mounted)
    try:
        yield LoopDisk(mounted)
    finally:
        with suppress(subprocess.CalledProcessError):
            _run("fsfreeze", "-u", mounted)
        _run("umount", "-l", mounted)
