"""The last lines of the log, and how late the loop was, over the API. Source: management page 15."""

import logging
from pathlib import Path

import pytest
from api_client import ApiClient
from broker_process import leveret_serve

from leveret.engine import Broker, ManualClock
from leveret.operator.command_error import CommandError
from leveret.operator.control import ControlTable
from leveret.operator.operator import Operator
from leveret.serving.logs import LINE_MAX, LINES, LogTail


def test_the_last_lines_are_kept() -> None:
    """So many, each of so many characters, oldest first; by level."""
    tail = LogTail()
    logger = logging.Logger("leveret.test")
    logger.addHandler(tail)
    for number in range(LINES + 5):
        logger.info("line %d", number)
    logger.error("x" * (LINE_MAX + 1))
    lines = tail.lines()
    assert len(lines) == LINES and lines[0]["text"] == "line 6"
    assert (lines[-1]["level"], lines[-1]["logger"], len(lines[-1]["text"])) == ("error", "leveret.test", LINE_MAX)
    table = ControlTable(Operator(log_lines=tail.lines))
    table.attach(Broker(ManualClock()))
    assert [line["level"] for line in table.run("log", {"level": "warning"})] == ["error"]
    assert len(table.run("log")) == LINES
    with pytest.raises(CommandError, match="level must be one of debug, info"):
        table.run("log", {"level": "loud"})


def test_a_broker_in_somebody_elses_process_has_none() -> None:
    """Its log is theirs."""
    table = ControlTable()
    table.attach(Broker(ManualClock()))
    assert table.run("log") == []


def test_over_the_api(tmp_path: Path) -> None:
    """Lines for administrators, delays for monitors; what peers send steers no terminal."""
    with leveret_serve(tmp_path, management="127.0.0.1:0") as process:
        api = ApiClient(process.lines[-1].removeprefix("leveret ready "))
        assert api.ask("DELETE", "connections/nobody").status == 404
        assert api.ask("PUT", "users/watcher", {"password": "watcher", "tags": "monitoring"}).status == 201
        lines = api.get("leveret/log")
        assert isinstance(lines, list) and all(set(line) == {"at_ms", "level", "logger", "text"} for line in lines)
        assert api.ask("GET", "leveret/log?level=loud").status == 400
        assert api.ask("GET", "leveret/log", user="watcher").status == 401
        turns = api.get("leveret/turns", user="watcher")
        assert len(turns["counts"]) == len(turns["bounds_ms"]) + 1 and turns["bounds_ms"][0] == 1.0
