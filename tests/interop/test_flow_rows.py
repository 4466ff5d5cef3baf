"""Flow control as real clients see it over sockets: the rows of the queues page, G.E, in part and in real time.

`make interop` plays every row by five clients. Here pika plays all that are quick, and the others a few, those of other
languages where their toolchains are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.interop.flow.__main__ import main
from leveret.interop.flow.page import page
from leveret.interop.flow.trial import DIFFERS, SEEN, Result, rows, run
from leveret.interop.running.suite import Driven
from leveret.interop.running.toolchains import CLIENTS, NotHere

#: Times are those of a busy machine.
SLACK_SECONDS = 10.0
SLOW = {"E12", "M4", "E11", "E29"}
ELSEWHERE = ("E04", "E05", "E07", "E09", "E13", "E28", "FAIL", "FLOW")
#: Drivers that take long to build are built once for all runs.
WORK = Path(__file__).parents[2] / ".peers" / "drivers"


@pytest.fixture(scope="module")
def pika_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Driven]]:
    work = tmp_path_factory.mktemp("flow")
    driven = Driven(CLIENTS["pika"].prepare(work, print), work / "pika.log")
    yield {"pika": driven}
    driven.end()


@pytest.mark.parametrize("world", ["addresses", "channel-flow", "memory", "unread", "stall", "temp", "store"])
def test_rows_by_pika(pika_alone: dict[str, Driven], world: str) -> None:
    """Each row of that configuration."""
    chosen = [row for row in rows() if row.world == world and row.name not in SLOW]
    results = run(chosen, pika_alone, slack=SLACK_SECONDS)
    assert [one for one in results if one.verdict == DIFFERS] == []
    assert len(results) == len(chosen) > 0


@pytest.mark.toolchain
@pytest.mark.parametrize("client", ["aio-pika", "amqp091-go", "amqplib", "amqp-client"])
def test_some_rows_by_others(client: str) -> None:
    """Another library of Python; Go, Node and Java."""
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        driven = Driven(CLIENTS[client].prepare(WORK, print), WORK / f"{client}-rows.log")
    except NotHere as error:
        pytest.skip(str(error))
    try:
        results = run(rows(ELSEWHERE), {client: driven}, slack=SLACK_SECONDS)
    finally:
        driven.end()
    assert [one for one in results if one.verdict != SEEN] == []


def test_what_a_client_saw_stands_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line: one row by one client, written."""
    file = tmp_path / "page.md"
    assert main(["--client", "pika", "--only", "FAIL", "--work", str(tmp_path), "--write", str(file)]) == 0
    assert "FAIL  pika: seen: 40 acks, 60 nacks" in capsys.readouterr().out
    assert "| pika | 40 acks, 60 nacks |" in file.read_text()


def test_the_page_has_one_line_for_those_who_saw_the_same() -> None:
    """And says what differs."""
    shown = [
        Result("FAIL", "one", SEEN, "x"),
        Result("FAIL", "two", SEEN, "x"),
        Result("BLOCK", "one", SEEN, "x"),
        Result("BLOCK", "two", DIFFERS, "y | z"),
    ]
    text = page(rows(("FAIL", "BLOCK")), shown, [], {"three": "no three"})
    assert "| all | x |" in text
    assert "| one | x |\n| | | two | **differs: y \\| z** |" in text
    assert "Not on the machine: three." in text


def test_a_limit_that_is_not_there_is_told(pika_alone: dict[str, Driven], monkeypatch: pytest.MonkeyPatch) -> None:
    """A row differs when the broker does not do what it says."""
    from leveret.interop.flow import trial

    monkeypatch.setitem(trial.WORLDS, "addresses", "")
    results = run(rows(("FAIL", "BLOCK", "E01")), pika_alone, slack=SLACK_SECONDS)
    assert [(one.row, one.verdict) for one in results] == [("E01", DIFFERS), ("BLOCK", DIFFERS), ("FAIL", DIFFERS)]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [(["--only", "E99"], "no such row: E99"), (["--client", "telepathy"], "no such client: telepathy")],
)
def test_what_cannot_be_run_is_told(arguments: list[str], fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one line."""
    assert main(arguments) == 2
    assert fault in capsys.readouterr().err
