"""`leveret init` and `leveret doctor`: a configuration to begin with, and what is wrong with a place for a broker."""

import json
import os
import resource
import socket
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from broker_process import leveret_serve

from leveret.__main__ import main
from leveret.cli.init_command import WITHOUT, commented_configuration
from leveret.settings import load_configuration
from leveret.settings.rows.broker_keys import KEYS

ROOT = Path(__file__).resolve().parents[2]


def leveret(*words: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()


def doctor(*words: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and of each thing looked at the last verdict and text."""
    code, out, err = leveret("doctor", "--json", *words)
    assert not err
    return code, findings(out)


def findings(out: str) -> dict[str, tuple[str, str]]:
    return {one["what"]: (one["verdict"], one["text"]) for one in json.loads(out)}


# --------------------------------------------------------------------------------------------------------------- init


def test_the_first_configuration_changes_nothing_and_every_line_of_it_is_right() -> None:
    """As it stands it is the default; with every setting uncommented it is valid and the default still."""
    text = commented_configuration()
    configuration, faults = load_configuration([("f", text)])
    assert not faults and not configuration.warnings and configuration.explicit == {}
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    whole, faults = load_configuration([("f", "\n".join(line.removeprefix("#") for line in lines))])
    assert not faults
    assert whole.explicit == {
        (table, name): key.default
        for table, keys in KEYS.items()
        for name, key in keys.items()
        if table not in WITHOUT and not key.reason and key.default is not None
    }
    assert len(whole.users) == len(whole.queues) == 1


def test_init_for_a_system(tmp_path: Path) -> None:
    """The configuration in one file, the data in one directory, as deploy/leveret.service has them; doctor follows."""
    unit = (ROOT / "deploy" / "leveret.service").read_text()
    assert "leveret serve --config /etc/leveret/leveret.toml --data /var/lib/leveret\n" in unit
    assert 'data = "/var/lib/leveret"' in (ROOT / "deploy" / "container.toml").read_text()
    words = "init --data /var/lib/leveret /etc/leveret/leveret.toml"
    assert f"leveret {words}" in (ROOT / "docs" / "operations.md").read_text()
    file, data = tmp_path / "etc" / "leveret" / "leveret.toml", tmp_path / "lib" / 'with "quotes"'
    assert leveret("init", "--data", str(data), str(file))[0] == 0
    configuration, faults = load_configuration([("f", file.read_text())])
    assert (faults, configuration.explicit) == ([], {("broker", "data"): str(data)})
    assert str(data) in doctor("--config", str(file))[1]["journal"][1]


def test_init_writes_no_file_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where it may not."""
    monkeypatch.chdir(tmp_path)
    assert leveret("init")[1].startswith("leveret.toml is written")
    assert leveret("check", "leveret.toml") == (0, "ok\n", "")
    Path("leveret.toml").write_text("mine")
    assert leveret("init") == (1, "", "leveret init: leveret.toml: exists already and is not changed\n")
    assert Path("leveret.toml").read_text() == "mine"
    code, _, why = leveret("init", "leveret.toml/leveret.toml")
    assert code == 1 and "cannot be written: leveret.toml is a file" in why
    assert leveret("init", "-") == (0, commented_configuration(), "")
    assert leveret("init", "--data", "\udcff", "other.toml") == (1, "", "leveret init: --data: is not text in UTF-8\n")
    assert not Path("other.toml").exists()


# ------------------------------------------------------------------------------------------------------------- doctor


def test_a_place_where_nothing_is_wrong(tmp_path: Path) -> None:
    """Nothing is left there; the directory need not exist."""
    file = tmp_path / "leveret.toml"
    file.write_text('[broker]\nlisten = ["127.0.0.1:0"]\n')
    code, found = doctor("--config", str(file), "--data", str(tmp_path / "data"))
    assert code == 0
    assert found["configuration"][0] == found["address"][0] == found["disk"][0] == found["journal"][0] == "ok"
    assert found["journal"][1].startswith("none in ") and found["fsync"]
    assert os.listdir(tmp_path) == ["leveret.toml"]


def test_a_journal_is_left_to_its_broker_and_read_after_it(tmp_path: Path) -> None:
    """Damage is a fault; an address that another process has is a warning."""
    data, file = tmp_path / "data", tmp_path / "d.toml"
    with leveret_serve(tmp_path, data=data) as broker:
        file.write_text(f'[broker]\nlisten = ["127.0.0.1:{broker.port}"]\n')
        code, found = doctor("--config", str(file), "--data", str(data))
        assert code == 0
        assert found["journal"][1].endswith("is in use by a broker, and was not checked")
        assert found["address"][0] == "warning" and "Address already in use" in found["address"][1]
        broker.stop()
    code, found = doctor("--config", str(file), "--data", str(data))
    assert (code, found["journal"][0], found["address"][0]) == (0, "ok", "ok")
    assert found["journal"][1].endswith("all intact")
    segment = max((path for path in data.rglob("*") if path.is_file()), key=lambda path: path.name[0].isdigit())
    octets = bytearray(segment.read_bytes())
    octets[20] ^= 0xFF
    segment.write_bytes(octets)
    code, found = doctor("--config", str(file), "--data", str(data))
    assert (code, found["journal"][0]) == (2, "fault"), segment


@pytest.mark.parametrize(
    ("content", "what", "text"),
    [
        ("[broker]\nheartbeet = 3\n", "configuration", "heartbeet: unknown key in [broker], did you mean 'heartbeat'?"),
        ("[journal]\nreserve = '9000000GiB'\n", "disk", " free in "),
    ],
)
def test_faults_of_configuration_and_disk(tmp_path: Path, content: str, what: str, text: str) -> None:
    """The rest is looked at all the same."""
    file = tmp_path / "leveret.toml"
    file.write_text(content)
    code, found = doctor("--config", str(file), "--data", str(tmp_path / "data"))
    assert (code, found[what][0]) == (2, "fault") and text in found[what][1]
    assert found["clock"][0] == "ok"


def test_faults_of_the_directory(tmp_path: Path) -> None:
    """A file, somebody else's files, a journal of another kind."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "hare.png").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "format").write_text("{")
    for name, what, text in (
        ("file", "data directory", "is not a directory"),
        ("photos", "journal", "no journal here"),
        ("other", "journal", "is not a journal's"),
    ):
        code, found = doctor("--data", str(tmp_path / name))
        assert (code, found[what][0]) == (2, "fault") and text in found[what][1], found


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no file system in memory here")
def test_warnings_of_the_machine() -> None:
    """A disk that forgets, and few descriptors: fewer than this process may have open by now."""
    command = [sys.executable, "-m", "leveret", "doctor", "--json", "--data", "/dev/shm/leveret-none"]
    limit = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (256, 256))
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode in (0, 2), done.stderr  # it may be small
    found = findings(done.stdout)
    assert found["data directory"][0] == "warning" and "is in memory" in found["data directory"][1]
    assert found["descriptors"] == ("warning", "256 for this process, enough for 192 connections")


def test_more_memory_than_there_is(tmp_path: Path) -> None:
    """It is no fault: the limit may never be reached."""
    file = tmp_path / "leveret.toml"
    file.write_text("[limits]\nmemory = '900000GiB'\n")
    code, found = doctor("--config", str(file), "--data", str(tmp_path / "data"))
    assert code == 0 and found["memory"][0] == "warning"


def test_files_at_the_path_of_a_socket(tmp_path: Path) -> None:
    """A socket of a broker that was killed is replaced; another file is in the way, and stays."""
    file, path = tmp_path / "leveret.toml", tmp_path / "s"
    file.write_text(f'[broker]\nlisten = ["unix:{path}"]\n')
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    for verdict, text in (("ok", "it is replaced if nobody listens"), ("warning", "Address already in use")):
        _, found = doctor("--config", str(file), "--data", str(tmp_path / "data"))
        assert found["address"][0] == verdict and text in found["address"][1]
        path.unlink()
        path.write_text("kept")
    assert path.read_text() == "kept"


def test_for_people(tmp_path: Path) -> None:
    """A line each, and what to do below it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file = tmp_path / "leveret.toml"
        file.write_text(f'[broker]\nlisten = ["127.0.0.1:{taken.getsockname()[1]}"]\n')
        _, out, _ = leveret("doctor", "--config", str(file), "--data", str(tmp_path / "data"))
    lines = out.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("warning  address: "))
    assert lines[at + 1].strip().startswith("-> stop what listens there")
