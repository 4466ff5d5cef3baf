"""`leveret pipeline serve`: commands from stdin, one a line, in one start."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from lakes import fill
from recorded_broker import RecordedBroker

from leveret.pipeline.java import NoJava, find_java

#: Counts the sessions of Spark that commands open.
COUNTING = """
import json, sys
from leveret.pipeline import session
from leveret.pipeline.__main__ import main

opened, original = [], session.open_session
session.open_session = lambda options: opened.append(options.master) or original(options)
code = main(["serve", *sys.argv[1:]])
print(json.dumps({"opened": opened}))
sys.exit(code)
"""


def make_lake(root: Path) -> str:
    one = RecordedBroker(root / "journal", scope="all")
    one.declare("q")
    one.publish("q", 5)
    one.get("q", 2)
    one.close()
    fill(root / "journal", root / "lake")
    return str(root / "lake")


def served(program: list[str], *commands: bytes) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the lines on stdout, stderr."""
    done = subprocess.run([sys.executable, *program], input=b"\n".join(commands), capture_output=True)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def test_commands_in_one_start(tmp_path: Path) -> None:
    """Each is answered in turn, with its exit code behind the answer, whatever the one before did."""
    pytest.importorskip("duckdb", reason="DuckDB is not installed (make spark)")
    lake = make_lake(tmp_path).encode()
    code, lines, told = served(
        ["-m", "leveret", "pipeline", "serve"],
        b"# what was there on Monday",
        b"audit --lake %s" % lake,
        b"",
        b"depth --lake %s --queue nobody" % lake,
        b"depth --lake %s --fail-if 'depth_max > 4'" % lake,
        b"audit --lake 'of whom",
        b"audit --lake \xff",
        b"auditt --lake x",
        b"follow --journal x --lake x",
        b"serve",
        b"audit --lake x --master local[1]",
        b"loss --lake %s" % lake,
    )
    assert code == 1, "the worst of them"
    exits = [one["exit"] for one in lines if "exit" in one]
    assert exits == [0, 1, 3, 1, 1, 1, 1, 1, 1, 0]
    order = [one.get("job", "exit") for one in lines]
    assert order == ["audit", "exit", "exit", "depth", *["exit"] * 7, "loss", "exit"]
    assert lines[0]["fates"] == {"acked": 2, "open": 3} and lines[1]["command"] == f"audit --lake {lake.decode()}"
    for words in (
        "the lake knows no queue 'nobody'",
        "No closing quotation",
        "no lake here",
        "did you mean 'audit'?",
        "follow would not end",
        "serve would not end",
        "unknown option '--master'",
    ):
        assert words in told, words
    assert "Traceback" not in told


def test_nothing_to_do() -> None:
    """No command is no failure."""
    assert served(["-m", "leveret", "pipeline", "serve"]) == (0, [], "")


@pytest.mark.spark
def test_java_starts_once(tmp_path: Path) -> None:
    """Also if a command between two others fails."""
    pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
    try:
        find_java(os.environ, tmp_path)
    except NoJava as error:
        pytest.skip(str(error))
    lake = make_lake(tmp_path).encode()
    session = ["--master", "local[1]", "--driver-memory", "600m"]
    code, lines, _ = served(
        ["-c", COUNTING, *session],
        b"audit --engine spark --lake %s" % lake,
        b"replay --where nonsense --engine spark --lake %s" % lake,
        b"loss --engine spark --lake %s" % lake,
    )
    assert code == 1 and [one["exit"] for one in lines if "exit" in one] == [0, 1, 0]
    assert lines[0]["fates"] == {"acked": 2, "open": 3}
    assert lines[-1] == {"opened": ["local[1]"]}
