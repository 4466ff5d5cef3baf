"""The last lines of the log, and how late the loop was, over the API. Source: management page 15."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika.exceptions
import pytest
from api_client import ApiClient
from broker_process import leveret_serve
from sent_events import streaming, until

from leveret.console.http_messages import Peer, Request
from leveret.console.resources.log import LogStream
from leveret.engine import Broker, ManualClock, User, Users
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
    table.operator.attach(Broker(ManualClock()))
    assert [line["level"] for line in table.run("log", {"level": "warning"})] == ["error"]
    assert len(table.run("log")) == LINES
    newest = lines[-1]["number"]
    assert [line["number"] for line in table.run("log", {"since": newest - 1})] == [newest]
    assert table.run("log", {"since": newest}) == []
    assert table.run("log", {"since": newest + 1}) == lines  # the number is of a process before this one
    with pytest.raises(CommandError, match="level must be one of debug, info"):
        table.run("log", {"level": "loud"})


def test_a_broker_in_somebody_elses_process_has_none() -> None:
    """Its log is theirs."""
    table = ControlTable()
    table.operator.attach(Broker(ManualClock()))
    assert table.run("log") == []


def test_over_the_api(tmp_path: Path) -> None:
    """Lines and delays for monitors; what peers send steers no terminal."""
    with leveret_serve(tmp_path, management="127.0.0.1:0") as process:
        api = ApiClient(process.lines[-1].removeprefix("leveret ready "))
        assert api.ask("DELETE", "connections/nobody").status == 404
        assert api.ask("PUT", "users/watcher", {"password": "watcher", "tags": "monitoring"}).status == 201
        lines = api.get("leveret/log")
        known = {"number", "at_ms", "level", "logger", "text"}
        assert isinstance(lines, list) and all(set(line) == known for line in lines)
        assert api.ask("GET", "leveret/log?level=loud").status == 400
        assert api.ask("GET", "leveret/log", user="watcher").status == 200
        assert api.ask("PUT", "users/looker", {"password": "looker", "tags": "management"}).status == 201
        assert api.ask("GET", "leveret/log", user="looker").status == 401
        turns = api.get("leveret/turns", user="watcher")
        assert len(turns["counts"]) == len(turns["bounds_ms"]) + 1 and turns["bounds_ms"][0] == 1.0


def test_as_a_stream(tmp_path: Path) -> None:
    """What there is, then what comes, of this level and graver; a reader goes on behind its last line."""
    with leveret_serve(tmp_path, management="127.0.0.1:0") as process:
        api = ApiClient(process.lines[-1].removeprefix("leveret ready "))
        api.ask("PUT", "users/watcher", {"password": "watcher", "tags": "monitoring"})
        with streaming(api, "?level=warning", "watcher", "log") as graver, streaming(api, place="log") as all_lines:
            _fail_to_log_in(process.port)
            first = until(all_lines, "line")
            assert first == api.get("leveret/log")[0]
            line = next(data for _, data in graver if "ACCESS_REFUSED" in data["text"])
            assert line["level"] == "warning"
            found = first
            while found != line:
                found = until(all_lines, "line")
                assert found["number"] <= line["number"]
            api.ask("DELETE", "users/watcher")
            assert until(graver, "cut") == {"reason": "the login is no longer valid"}
            assert list(graver) == []
        with streaming(api, place="log", **{"last-event-id": str(line["number"] - 1)}) as again:
            assert until(again, "line") == line
        with streaming(api, place="log", **{"last-event-id": "1000000"}) as after_a_restart:
            assert until(after_a_restart, "line") == first


def _fail_to_log_in(port: int) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(pika.URLParameters(f"amqp://guest:wrong@127.0.0.1:{port}/"))


def test_a_slow_reader_is_told_what_it_missed() -> None:
    """Lines are kept for nobody: the memory is that of the last ones, however slow a reader is."""
    tail = LogTail()
    logger = logging.Logger("leveret.test")
    logger.addHandler(tail)
    table = ControlTable(Operator(log_lines=tail.lines))
    watcher = User("watcher", tags=("monitoring",))
    broker = Broker(ManualClock(), Users([watcher]))
    table.operator.attach(broker)
    api: Any = SimpleNamespace(broker=broker, ask=lambda command, **given: table.run(command, given))
    request = Request("GET", "leveret/log", {}, {"authorization": ""}, Peer("", is_loopback=True), user=watcher)
    stream = LogStream(api, request, "info", 0)
    logger.info("first")
    assert b'"text":"first"' in (stream.piece() or b"")
    assert stream.piece() == b""
    for number in range(LINES + 5):
        logger.info("line %d", number)
    piece = (stream.piece() or b"").decode()
    assert 'event: gap\ndata: {"dropped":5}' in piece and '"line 5"' in piece and '"line 4"' not in piece
    assert piece.count("event: line") == LINES
