"""Which Java is taken, and what is said when there is none. No Java is started: small programs stand in its place."""

import subprocess
from pathlib import Path

import pytest

from leveret.pipeline import java
from leveret.pipeline.java import NoJava, find_java, java_version, wrapped_java


def a_java(home: Path, version: str) -> Path:
    """Something that says it is Java of this version, and prints its arguments otherwise."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 || echo "$@"\n')
    path.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_packaged_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed beside these tests."""
    monkeypatch.setattr(java, "packaged_java", lambda: None)


@pytest.mark.parametrize(
    "said, version", [("17.0.15", 17), ("21.0.8", 21), ("1.8.0_392", 8), ("25-ea", 25), ("21", 21)]
)
def test_versions(tmp_path: Path, said: str, version: int) -> None:
    """As Javas of all ages say them; a program that fails or is not there is none."""
    assert java_version(a_java(tmp_path, said) / "bin" / "java") == version
    assert java_version(tmp_path / "nothing") is None
    (tmp_path / "bad").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bad").chmod(0o755)
    assert java_version(tmp_path / "bad") is None


def test_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME, then the PATH, then the package; one of another version is passed over."""
    old, home = a_java(tmp_path / "old", "11.0.1"), a_java(tmp_path / "home", "17.0.1")
    path, packaged = a_java(tmp_path / "path", "21.0.1"), a_java(tmp_path / "packaged", "21.0.8")
    on_path = f"{path / 'bin'}:/usr/bin:/bin"
    assert find_java({"JAVA_HOME": str(home), "PATH": on_path}, tmp_path) == str(home)
    assert find_java({"JAVA_HOME": str(old), "PATH": on_path}, tmp_path) == str(path)
    monkeypatch.setattr(java, "packaged_java", lambda: packaged)
    found = find_java({"JAVA_HOME": str(old), "PATH": "/nowhere"}, tmp_path / "scratch")
    assert found.startswith(str(tmp_path / "scratch"))


def test_none(tmp_path: Path) -> None:
    """One sentence: what was found, what to do."""
    with pytest.raises(NoJava, match="neither JAVA_HOME nor a java.*openjdk-17-jre-headless.*spark-java"):
        find_java({"PATH": "/nowhere"}, tmp_path)
    old = a_java(tmp_path / "old", "25.0.2")
    with pytest.raises(NoJava, match=r"JAVA_HOME=\S+ is Java 25; \S+/java is Java 25"):
        find_java({"JAVA_HOME": str(old), "PATH": f"{old / 'bin'}:/bin:/usr/bin"}, tmp_path)


def test_the_wrapper_leaves_out_one_argument(tmp_path: Path) -> None:
    """Others pass as they are, with their spaces."""
    home = wrapped_java(a_java(tmp_path / "home", "21.0.8"), tmp_path / "scratch")
    command = [str(home / "bin" / "java"), "-Da=b c", "--add-modules=jdk.incubator.vector", "Main", "x y"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "-Da=b c Main x y\n"
    assert wrapped_java(tmp_path / "home", tmp_path / "scratch") == home
