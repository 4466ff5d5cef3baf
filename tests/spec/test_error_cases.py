"""Every row of error_cases.json as a conversation with the broker, its outcome compared word for word.

The JSON holds what RabbitMQ 3.10.8 answers; its field `leveret` says where we answer otherwise, and why. The rows are
in tests/support/error_rows_*.py. With LEVERET_SPEC_PEER=rabbitmq they run against RabbitMQ, which proves the table.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import error_rows_access
import error_rows_connection
import error_rows_model
import pytest
from api_client import ApiClient
from rawclient import Client
from spec_broker import RABBITMQ_MESSAGE_SIZE_MAX, SpecBroker, close_of, spec_broker

from leveret.testing import start_broker

CASES: dict[str, dict[str, Any]] = {
    case["name"]: case for case in json.loads(Path(__file__).with_name("error_cases.json").read_text())
}
TABLES = (error_rows_access.ROWS, error_rows_connection.ROWS, error_rows_model.ROWS)
ROWS = {name: row for table in TABLES for name, row in table.by_name.items()}
BARE = {name for table in TABLES for name in table.bare}

# ------------------------------------------------------------------------------------------------------ expectations


def expectation(case: dict[str, Any], *, is_rabbitmq: bool) -> dict[str, Any]:
    """What the broker must answer: the case, with our deviation over it."""
    deviation = {} if is_rabbitmq else case.get("leveret", {})
    if "text" in deviation or "text_pattern" in deviation:
        case = {key: value for key, value in case.items() if key not in ("text", "text_pattern")}
    if deviation.get("scope", case["scope"]) in ("none", "socket-close"):
        case = {**case, "code": None}
    elif "scope" in deviation and "class_id" not in deviation:
        case = {**case, "class_id": None, "method_id": None}
    return {**case, **deviation}


def check(client: Client, expected: dict[str, Any]) -> None:
    """Read the outcome of a case off the connection."""
    match expected["scope"]:
        case "channel":
            close = client.expect("channel.close")
            check_close(close_of(close), expected)
            client.send("channel.close-ok")
            client.call("channel.open")  # the connection lives and the number is free
        case "connection":
            client.running = False
            close = client.expect("connection.close", channel=0)
            check_close(close_of(close), expected)
            with suppress(ConnectionError):  # RabbitMQ does not wait for an answer when a virtual host goes
                client.send("connection.close-ok", channel=0)
            client.expect_eof()
        case "socket-close":
            client.running = False
            client.expect_eof()
        case _:
            assert expected["scope"] == "none"
            if client.running:
                client.call("channel.open", channel=40_000)  # the connection lives
                client.call("channel.close")  # and nothing was said on channel 1


def check_close(actual: tuple[int, str, int, int], expected: dict[str, Any]) -> None:
    code, text, *ids = actual
    if "text_pattern" in expected:
        assert re.fullmatch(expected["text_pattern"], text), (text, expected["text_pattern"])
    else:
        assert text == expected["text"]
    assert code == expected["code"]
    if expected["class_id"] is not None:
        assert ids == [expected["class_id"], expected["method_id"]]


# These want a broker of their own, see below.
MESSAGE_TOO_LARGE = "message-too-large"
ACKNOWLEDGEMENT_TIMEOUT = "consumer-ack-timeout"
#: Case -> the headers of the request that closes the connection.
CLOSED_OVER_HTTP: dict[str, dict[str, str]] = {
    "forced-mgmt-close": {},
    "forced-mgmt-close-reason": {"x-reason": "bye now"},
}

# -------------------------------------------------------------------------------------------------------------- tests


def test_every_case_is_executed() -> None:
    """Each case of error_cases.json has a row or a test, and each of these has a case."""
    assert {*ROWS, MESSAGE_TOO_LARGE, ACKNOWLEDGEMENT_TIMEOUT, *CLOSED_OVER_HTTP} == CASES.keys()


def test_every_deviation_says_why() -> None:
    """A case where we answer otherwise than RabbitMQ 3.10 carries the reason."""
    assert [name for name, case in CASES.items() if "leveret" in case and not case["leveret"].get("why")] == []


@pytest.mark.parametrize("name", list(ROWS))
def test_error_case(name: str, broker: SpecBroker) -> None:
    """The broker answers the case with this code, scope, text and ids, and with nothing else."""
    client = broker.connect() if name in BARE else broker.open()
    ROWS[name](client, broker)
    check(client, expectation(CASES[name], is_rabbitmq=broker.is_rabbitmq))


@pytest.mark.parametrize("name", CLOSED_OVER_HTTP)
def test_a_connection_that_is_closed_over_http(name: str) -> None:
    """forced-mgmt-close, forced-mgmt-close-reason: connection.close 320 with the header's reason, or RabbitMQ's."""
    with start_broker(management=True) as broker:
        client = Client.open("127.0.0.1", broker.port)
        api = ApiClient(broker.management_url)
        (connection,) = (quote(one["name"], safe="") for one in api.get("connections?columns=name"))
        assert api.ask("DELETE", f"connections/{connection}", headers=CLOSED_OVER_HTTP[name]).status == 204
        check(client, CASES[name])
        assert api.get("connections") == []


def test_a_message_that_is_too_large(tmp_path: Path) -> None:
    """message-too-large: the channel closes after the whole content arrived, and the connection lives on."""
    configuration = "[limits]\nmessage-size = 1000\n"
    with spec_broker(tmp_path, configuration) as broker:
        limit = RABBITMQ_MESSAGE_SIZE_MAX if broker.is_rabbitmq else 1000
        expected = dict(CASES[MESSAGE_TOO_LARGE])
        expected["text"] = expected["text"].replace("1001", str(limit + 1)).replace("1000", str(limit))
        client = broker.open(tune={"frame_max": 131072})
        client.publish("", "p.nowhere", bytes(limit))
        client.publish("", "p.nowhere", bytes(limit + 1))
        check(client, expected)
        broker.clean_up()


def test_an_acknowledgement_that_does_not_come(tmp_path: Path) -> None:
    """consumer-ack-timeout: the channel closes, the connection lives on."""
    rabbitmq = "[{rabbit, [{consumer_timeout, 1000}, {channel_tick_interval, 1000}]}]."
    with spec_broker(tmp_path, "consumer-timeout = 1000\n", rabbitmq=rabbitmq) as broker:
        client = broker.open()
        client.call("queue.declare", queue="p.q")
        client.publish("", "p.q", b"x")
        client.wait_for_ready("p.q", 1)
        client.take("p.q")
        check(client, expectation(CASES[ACKNOWLEDGEMENT_TIMEOUT], is_rabbitmq=broker.is_rabbitmq))
        broker.clean_up()
