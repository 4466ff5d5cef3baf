"""Distributions from Maven Central, by whatever repositories this machine's Maven is set up with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

DOWNLOAD_SECONDS_MAX = 600


class NotFetched(Exception):
    """Java or Maven is missing, or Maven could not get it; the message says which."""


def missing(java_min: int) -> str:
    """What is needed to fetch and run a program that wants this Java, and is not here, or ""."""
    for program, remark in (("java", f"no Java ({java_min} or newer)"), ("mvn", "no Maven to fetch it with")):
        if shutil.which(program) is None:
            return remark
    said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < java_min:
        return f"Java {java_min} or newer is needed"
    return ""


def unpacked(artifact: str, archive: str, inside: str, work: Path, java_min: int) -> Path:
    """The folder `inside` the archive that Maven calls `artifact`, in `work`; fetched when it is not there yet.

    Raises: NotFetched.
    """
    if remark := missing(java_min):
        raise NotFetched(remark)
    work = work.resolve()
    home = work / inside
    if home.exists():
        return home
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
        raise NotFetched(f"Maven took more than {DOWNLOAD_SECONDS_MAX} s for {artifact}") from None
    if done.returncode != 0:
        raise NotFetched(f"Maven could not get {artifact}:\n{(done.stdout + done.stderr)[-1000:]}")
    unpacking = work / f"unpacking-{os.getpid()}"
    shutil.unpack_archive(work / archive, unpacking)
    home.parent.mkdir(parents=True, exist_ok=True)
    try:
        (unpacking / inside).rename(home)
    except OSError:
        if not home.exists():  # else another run was faster
            raise
    shutil.rmtree(unpacking, ignore_errors=True)
    return home
