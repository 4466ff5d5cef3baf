"""Distributions from Maven Central, through the repositories that this machine's Maven is configured with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
import zlib
from pathlib import Path

DOWNLOAD_SECONDS_MAX = 600


class NotFetched(Exception):
    """Java or Maven is missing, or the download failed; the message says which."""


def java_version() -> str:
    """The version of this machine's Java; "": there is none."""
    if shutil.which("java") is None:
        return ""
    output = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "([^"]+)', output)
    return found[1] if found is not None else ""


def why_java_is_missing(program: str, java_min: int) -> str:
    """The reason why a program that needs this version of Java cannot run here; "": it can."""
    here = java_version()
    major = re.match(r"\d+", here)
    if major is None:
        return f"no Java on this machine ({program} needs {java_min} or newer)"
    if int(major[0]) < java_min:
        return f"{program} needs Java {java_min} or newer, here is {here}"
    return ""


def fetch(artifact: str, work: Path) -> None:
    """Copy an artifact into the folder `work`, by Maven. Raises: NotFetched."""
    if shutil.which("mvn") is None:
        raise NotFetched(f"no Maven to fetch {artifact} with; or put it in {work}")
    work.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "--batch-mode", "--quiet", "dependency:copy", f"-Dartifact={artifact}"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={work}"],
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise NotFetched(f"Maven took more than {DOWNLOAD_SECONDS_MAX} s to get {artifact}") from None
    if done.returncode != 0:
        raise NotFetched(f"Maven could not get {artifact}:\n{(done.stdout + done.stderr)[-1000:]}")


def unpacked(artifact: str, archive: str, inside: str, work: Path, java_min: int) -> Path:
    """The folder `inside` an archive in `work`, fetched and unpacked if it is missing. `artifact`: its name in Maven.

    Raises: NotFetched.
    """
    if remark := why_java_is_missing(inside, java_min):
        raise NotFetched(remark)
    file = work.resolve() / archive
    if not (file.parent / inside).exists():
        if not file.exists():
            fetch(artifact, file.parent)
        unpack(file, inside)
    return file.parent / inside


def unpack(archive: Path, inside: str) -> None:
    """Unpack a folder of an archive beside it; other processes may do so at the same time.

    Raises: NotFetched: the archive is damaged.
    """
    home, unpacking = archive.parent / inside, archive.with_name(f"unpacking-{os.getpid()}")
    home.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.unpack_archive(archive, unpacking)
        (unpacking / inside).rename(home)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if not home.exists():  # else another process was faster
            raise NotFetched(f"{archive} cannot be unpacked ({error}); delete it to have it fetched again") from error
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)
