"""What `serve --data` is pointed at: one sentence about the data directory and exit code 1 where it cannot be used."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import leveret_serve
from consumers import channel_of
from pika import BasicProperties

from leveret.journal.recovery.repair import repair
from leveret.testing import start_broker


def refusal_of(data: Path) -> str:
    """What a start with this data directory says. Asserts one sentence, without a traceback, and exit code 1."""
    command = [sys.executable, "-m", "leveret", "serve", "--listen", "127.0.0.1:0", "--management", "off"]
    command += ["--data", str(data)]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (tried.returncode, tried.stdout) == (1, "")
    (line,) = tried.stderr.splitlines()
    return line


def test_a_file(tmp_path: Path) -> None:
    """Not a directory, neither itself nor above."""
    file = tmp_path / "file"
    file.write_text("letters")
    assert refusal_of(file) == f"leveret: data directory {file}: Not a directory"
    assert refusal_of(file / "below") == f"leveret: data directory {file}/below: Not a directory"
    assert file.read_text() == "letters"


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Path]:
    """A directory in which nobody, or not this user, can write."""
    path = tmp_path / "unwritable"
    path.mkdir()
    if os.geteuid():
        path.chmod(0o555)
        yield path
        path.chmod(0o755)
        return
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", path], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("root writes everywhere, and may not mount a read-only file system here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def test_a_place_that_cannot_be_written_to(unwritable: Path) -> None:
    """The directory itself, and one that would have to be made."""
    for data in (unwritable, unwritable / "new"):
        line = refusal_of(data)
        assert line.startswith(f"leveret: data directory {data}: ")
        assert line.endswith(("Read-only file system", "Permission denied"))


@pytest.mark.parametrize("foreign", ["letter.txt", ".profile", "lock.txt", "logs/broker.log"])
def test_a_directory_with_foreign_files_is_left_alone(tmp_path: Path, foreign: str) -> None:
    """Somebody's home, a mistyped path: nothing is made there, not even a lock."""
    data = tmp_path / "home"
    (data / foreign).parent.mkdir(parents=True)
    (data / foreign).write_text("mine")
    line = refusal_of(data)
    assert line.startswith(f"leveret: data directory {data}: holds other files ('{foreign.split('/')[0]}' among them)")
    assert [path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file()] == [foreign]


def test_a_foreign_format_file_is_left_alone(tmp_path: Path) -> None:
    """The name alone makes no journal."""
    (tmp_path / "format").write_text("A4, two columns")
    assert refusal_of(tmp_path) == f"leveret: data directory {tmp_path}: the file 'format' is not a journal's"
    assert os.listdir(tmp_path) == ["format"]


@pytest.mark.parametrize("octets", [None, b"", b"{}"])
def test_a_lost_format_file_is_no_end(tmp_path: Path, octets: bytes | None) -> None:
    """The refusal names the way out, and that way gives back what is in the segments."""
    data, whole = tmp_path / "data", tmp_path / "whole"
    with start_broker(data=data) as broker, channel_of(broker.url) as channel:
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"kept", BasicProperties(delivery_mode=2))
    (data / "format").unlink()
    if octets is not None:
        (data / "format").write_bytes(octets)
    assert f"leveret journal repair {data} --out DIRECTORY saves what can be read" in refusal_of(data)
    repair(str(data), str(whole))
    with start_broker(data=whole) as broker:
        assert [message.body for message in broker.queue("q").ready] == [b"kept"]


def test_a_damaged_journal(tmp_path: Path) -> None:
    """An octet in a block before the last one is another: which records are lost, and how to save the others."""
    data = tmp_path / "data"
    with start_broker(data=data) as broker, channel_of(broker.url) as channel:
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for _ in range(3):
            channel.basic_publish("", "q", bytes(5_000), BasicProperties(delivery_mode=2))
    (segment,) = data.glob("*.log")
    octets = bytearray(segment.read_bytes())
    octets[segment.stat().st_size // 2] ^= 1
    segment.write_bytes(octets)
    line = refusal_of(data)
    assert line.startswith(f"leveret: data directory {data}: segment {segment.name}, offset ")
    assert line.endswith(f"; leveret journal repair {data} --out DIRECTORY saves what can be read")


@pytest.mark.parametrize("left", [(), ("lost+found/",), ("lock",), ("lock", "readers/", "format.new")])
def test_a_directory_that_is_empty_or_was_begun_is_taken(tmp_path: Path, left: tuple[str, ...]) -> None:
    """The root of a new file system, and what a kill left of the first start; the second start finds its own files."""
    data = tmp_path / "data"
    data.mkdir()
    for name in left:
        (data / name).mkdir() if name.endswith("/") else (data / name).touch()
    for _ in range(2):
        with leveret_serve(tmp_path, data=data) as broker:
            assert broker.stop() == 0
    (data / "note from the administrator").touch()
    with leveret_serve(tmp_path, data=data) as broker:
        assert broker.stop() == 0
