"""Tools of others at the console, scaled down: those that this machine has, on Leveret; how answers are compared."""

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from leveret.interop.brokers.peers import Peer
from leveret.interop.suites.comparison import read_known
from leveret.interop.tools.__main__ import KNOWN_FILE
from leveret.interop.tools.admin_lines import NAGIOS, V1
from leveret.interop.tools.brokers import HttpBroker
from leveret.interop.tools.lines import Line, fields_of, run_lines
from leveret.interop.tools.page import Entry, render
from leveret.interop.tools.permissions import run_permissions
from leveret.interop.tools.pinned import TOOLS
from leveret.interop.tools.results import Result, Run, compare, steady
from leveret.interop.tools.scene import scene
from leveret.testing import start_broker

#: The first commands of rabbitmqadmin: each starts a Python.
SCALED = 24
ADMIN, CHECK = shutil.which("rabbitmqadmin"), shutil.which("check_rabbitmq_server")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HttpBroker]:
    """A broker in this process, with a client."""
    with start_broker(management=True) as broker:
        peer = Peer("leveret", broker.port, os.getpid(), tmp_path, tmp_path / "log")
        found = HttpBroker(peer, int(broker.management_url.rstrip("/").rpartition(":")[2]), 0)
        with scene(found):
            yield found


def _failed(program: Sequence[str], lines: Sequence[Line], broker: HttpBroker, directory: Path) -> dict[str, str]:
    run = run_lines(program, lines, broker, directory)
    assert len(run.results) == len(lines)
    return {check: result.reason for check, result in run.results.items() if not result.passed}


@pytest.mark.skipif(ADMIN is None, reason="no rabbitmqadmin on this machine (make peers)")
def test_rabbitmqadmin(broker: HttpBroker, tmp_path: Path) -> None:
    """Declares, publishes, gets, and what it is refused."""
    program = ("python3", str(ADMIN), "-H", "{host}", "-P", "{port}")
    assert _failed(program, V1[:SCALED], broker, tmp_path) == {}


@pytest.mark.skipif(CHECK is None, reason="no nagios-plugins-rabbitmq on this machine (make peers)")
def test_nagios(broker: HttpBroker, tmp_path: Path) -> None:
    """What is well, and what is critical."""
    assert _failed((), NAGIOS[::4], broker, tmp_path) == {}


def test_topic_permissions_outlive_permissions(broker: HttpBroker, tmp_path: Path) -> None:
    """As observed at RabbitMQ 3.10.8, by the same requests: they stay when the permissions are cleared, are in force
    again with the next ones, and go with their virtual host and their user alone."""
    run = run_permissions(broker, tmp_path, tmp_path)
    left = {
        check.partition(". ")[2]: "".join(
            (
                "p" * len(result.facts["permissions"]),
                "t" * len(result.facts["topic-permissions"]),
                "" if result.facts["done"] == "done" else f" {result.facts['done']}",
            )
        )
        for check, result in run.results.items()
    }
    assert left == {
        "virtual host": "",
        "user": "",
        "topic permissions without permissions": "t",
        "a second exchange": "tt",
        "permissions after topic permissions": "ptt",
        "permissions cleared": "tt",
        "permissions cleared again": "tt 404",
        "topic permissions changed meanwhile": "tt",
        "permissions set again": "ptt",
        "one exchange cleared": "pt",
        "topic permissions cleared": "p",
        "topic permissions cleared again": "p 404",
        "topic permissions set again": "pt",
        "the virtual host deleted": "",
        "a virtual host of that name": "",
        "topic permissions alone": "t",
        "the virtual host deleted with those": "",
        "another one of that name": "",
        "permissions there": "p",
        "topic permissions there": "pt",
        "the user deleted": "",
        "a user of that name": "",
        "topic permissions of the new user": "t",
        "the user deleted with those": "",
        "another user of that name": "",
    }


def _run(**results: Result) -> Run:
    return Run(dict(results))


@pytest.mark.parametrize(
    "ours, theirs, text",
    [
        (Result(True, 1), Result(True, 1), None),
        (Result(True, keys=("a", "b", "more")), Result(True, keys=("a", "b")), None),
        (Result(False, reason="no"), Result(False, reason="not"), None),
        (Result(True, 1), Result(True, 2), "1, RabbitMQ 2"),
        (Result(False, reason="no"), Result(True), "failed: no"),
        (Result(True), Result(False, reason="no"), "passes; RabbitMQ: no"),
        (Result(True, keys=("a",)), Result(True, keys=("a", "b", "c")), "lacks b, c"),
        (Result(True, {"a": 1, "b": [1, 2]}), Result(True, {"a": 1, "b": [1, 3]}), "b: 2, RabbitMQ 3"),
        (Result(True, [1]), Result(True, [1, 2]), "1 entries, RabbitMQ 2: [1] / [1, 2]"),
    ],
)
def test_differences(ours: Result, theirs: Result, text: str | None) -> None:
    """What passes on one broker alone, fields that are missing, other facts; more fields are none."""
    assert [one.text for one in compare(_run(check=ours), _run(check=theirs), {})] == ([] if text is None else [text])


def test_a_check_that_was_not_run() -> None:
    """It counts, and a reason that fits its name explains it."""
    (found,) = compare(_run(), _run(check=Result(True)), {"other": "no", "ch*": "why"})
    assert (found.text, found.reason) == ("not run", "why")


def test_known_differences_are_of_tools_that_are_there(tmp_path: Path) -> None:
    """And each has its reason."""
    form = '"check" = "reason"'
    assert read_known(KNOWN_FILE, form).keys() <= TOOLS.keys()
    wrong = tmp_path / "known.toml"
    wrong.write_text('[tool]\ncheck = ""\n')
    with pytest.raises(ValueError, match="reason"):
        read_known(wrong, form)


def test_what_changes_from_run_to_run_is_hidden() -> None:
    """Names of connections and nodes, times."""
    text = (
        "127.0.0.1:5 -> 127.0.0.1:5672 peer77@localhost rabbit@localhost rabbit@c 2026-11-23T10:00:00.5+00:00 amq.gen-x"
    )
    assert steady(text) == "CONNECTION NODE NODE NODE TIME GENERATED"


def test_fields_of_an_answer() -> None:
    """With those of what is inside."""
    assert fields_of([{"a": {"b": 1}}, {"c": [{"d": 1}]}]) == ("a", "a.b", "c", "c.d")


def test_the_page() -> None:
    """A row for each tool; what differs, and what fails on both."""
    tool = TOOLS["rabbitmqadmin 1"]
    ours, theirs = _run(a=Result(True, 1), b=Result(False, reason="x|y")), _run(a=Result(True, 2), b=Result(False))
    runs = {"rabbitmq": theirs, "leveret": ours}
    page = render([Entry(tool, "3", runs, compare(ours, theirs, {})), Entry(tool, "", {}, [], "not here")])
    assert "| 1 of 2 | 1 of 2 | 1 not explained |" in page
    assert "| `a` | 1, RabbitMQ 2 | **not explained** |" in page
    assert "not run: not here" in page
    assert "Fails on both alike" in page
