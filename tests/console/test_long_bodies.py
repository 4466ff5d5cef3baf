"""Long bodies are read in steps, and mean the same as those that are read at once. Source: management page 1.3, 20."""

import json
from typing import Any

import pytest
from api_client import ApiClient

from leveret.console import long_bodies, steps
from leveret.console.bodies import parsed
from leveret.console.http_messages import Refusal
from leveret.console.long_bodies import parsed_in_steps
from leveret.operator.steps import finished
from leveret.testing import start_broker


@pytest.fixture(autouse=True)
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry is a step."""
    monkeypatch.setattr(long_bodies, "AT_ONCE_MAX", 0)
    monkeypatch.setattr(steps, "STEP_S", -1.0)


def _outcome(read: Any) -> Any:
    try:
        return "value", read()
    except Refusal as refusal:
        return "refused", refusal.reason


ROW = {"name": "a\u00e4\U0001f407", "n": [1, -2.5, True, None, {"deep": []}], "": ""}
TEXTS = [
    json.dumps(ROW),
    json.dumps({"queues": [ROW] * 30, "users": [], "one": ROW, "n": 1}, indent=3),
    json.dumps([ROW] * 3),
    *('"text"', "1", "null", "[]", "{}", " [ ] ", "\n{ }\t", '{"a" : [ 1 , 2 ] , "b":[ ]}'),
    *(
        "",
        " ",
        "{",
        "[",
        "]",
        "}",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        '{"a"}',
        '{"a":}',
        '{"a":1,}',
        '{"a":1 "b":2}',
    ),
    *(
        "{1:2}",
        "{a:1}",
        '{"a":1}x',
        "[1]]",
        "[] []",
        "nul",
        "[nul]",
        "[NaN]",
        "[1e999]",
        '{"a":[-1e999,1]}',
        '{"a":[Infinity]}',
        "'a'",
        '{"a":["\\x"]}',
    ),
    *('["\\ud800"]', '{"\\ud800":[1]}', '{"a":["\\ud83d\\udc07"]}', '["' + "\\u00e4" * 5 + '"]'),
    *('{"a":1,"a":2}', '{"a":[1],"a":[2]}', '[{"b":1,"b":2}]', '{"c":[{"b":1,"b":2}]}', '{"c":{"b":1,"b":2}}'),
    *("[" + "1" * 30 + "]", "[" + "1" * 31 + "]", '{"a":' + "1" * 5000 + "}"),
    *("[" * depth + "]" * depth for depth in (99, 100, 101, 102, 5000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (99, 100, 101, 102, 5000)),
    *('{"a":' + "[" * depth + "]" * depth + "}" for depth in (98, 99, 100, 101)),
]


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20].encode("unicode_escape").decode())
def test_it_means_the_same(text: str, is_strict: bool) -> None:
    """The same value, or the same refusal."""
    body = text.encode("utf-8", "surrogatepass")
    at_once = _outcome(lambda: parsed(body, "no", is_strict=is_strict))
    assert _outcome(lambda: finished(parsed_in_steps(body, "no", is_strict=is_strict))) == at_once


@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_a_hundred_levels_and_no_more(opens: str, closes: str) -> None:
    """The value within them is no level."""
    for depth, outcome in ((100, "value"), (101, "refused")):
        body = f"{opens * depth}1{closes * depth}".encode()
        assert _outcome(lambda body=body: parsed(body, "no"))[0] == outcome


@pytest.mark.parametrize("body", [b"\xff", b'{"a":["\xff"]}', b"\xed\xa0\x80", b"\xef\xbb\xbf{}"])
def test_octets_that_are_no_text(body: bytes) -> None:
    """Refused either way."""
    assert _outcome(lambda: finished(parsed_in_steps(body, "no"))) == ("refused", "no")
    assert _outcome(lambda: parsed(body, "no")) == ("refused", "no")


def test_it_has_steps() -> None:
    """As many as entries."""
    body = json.dumps({"queues": [ROW] * 30, "bindings": [1] * 12}).encode()
    assert sum(1 for _ in parsed_in_steps(body)) == 43  # one more to decode it


def test_a_long_import() -> None:
    """Through the API: all is there, and what is wrong changes nothing."""
    queues = [{"vhost": "/", "name": f"q{number}", "durable": True, "arguments": {}} for number in range(60)]
    with start_broker(management=True) as broker:
        api = ApiClient(broker.management_url)
        kind = {"content-type": "application/json"}
        half = json.dumps({"queues": queues})[:-5].encode()
        assert api.ask("POST", "definitions", half, headers=kind).reason == "failed_to_parse_json"
        assert api.get("queues") == []
        assert api.ask("POST", "definitions", {"queues": queues}).status == 204
        assert len(api.get("queues")) == 60
