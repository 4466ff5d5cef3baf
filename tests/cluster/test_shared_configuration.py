"""How nodes find out that their configurations differ, by digests; and what is said that makes no sense."""

import json
import logging
from typing import Any

import pytest

from leveret.cluster.link.frames import check_status
from leveret.serving.node_report import NOT_HOSTED_MAX, first_lines
from leveret.serving.shared_configuration import OCTETS_MAX, PARTS_MAX, SharedConfiguration
from leveret.serving.tls_files import NO_TLS
from leveret.settings import load_configuration

SECRET = b"a secret of the cluster"
HEARTBEAT, USER = "[broker]\nheartbeat = 30\n", "[[user]]\nname = 'shop'\n"
#: A character that takes twelve octets in the JSON of a beacon.
WIDE = "\U0001f407"
HASH = "password-hash = 'J5stgLsXcSTcKnLC+xbYo5rUAFMhUJ2Y3JDO85pn1K6xHFXt'\n"


def shared(text: str = "", secret: bytes = SECRET) -> SharedConfiguration:
    configuration, faults = load_configuration([("leveret.toml", text)])
    assert not faults
    return SharedConfiguration(secret, configuration, NO_TLS)


def told(one: SharedConfiguration, other: SharedConfiguration) -> dict[str, object]:
    """What a node tells when the other has told its fingerprint."""
    return one.for_status([{"fingerprint": other.fingerprint}])


def test_parts_travel_only_where_fingerprints_differ() -> None:
    """Two beacons a second are for figures."""
    alike, other = shared(HEARTBEAT), shared(USER)
    assert set(told(alike, shared(HEARTBEAT))) == {"fingerprint"} == set(alike.for_status([{}]))
    assert set(told(alike, other)) == {"fingerprint", "parts"}


def test_what_differs_is_named() -> None:
    """Keys first; what only one of the two has says so."""
    a, b = shared(HEARTBEAT + USER), shared("[broker]\nheartbeat = 31\n[[queue]]\nname = 'q'\n")
    found = ["[broker] heartbeat", "queue 'q' (at b alone)", "user 'shop' (at a alone)"]
    assert a.differences(told(b, a), "a", "b") == found
    assert a.differences(told(shared(HEARTBEAT + USER), b), "a", "b") == []


def test_a_reload_changes_what_is_told() -> None:
    """And what differs."""
    a, b = shared(HEARTBEAT), shared()
    before = a.fingerprint
    configuration, _ = load_configuration([("leveret.toml", "")])
    a.read(configuration, NO_TLS)
    assert a.fingerprint == b.fingerprint != before


def test_digests_are_keyed() -> None:
    """Who has not the secret cannot try passwords; two secrets have nothing in common."""
    parts = [shared(USER + HASH, secret).parts["user 'shop'"] for secret in (SECRET, b"another secret of it")]
    assert parts[0] != parts[1] and "J5stg" not in json.dumps(shared(USER + HASH).parts)


@pytest.mark.parametrize("count, names", [(PARTS_MAX, PARTS_MAX), (PARTS_MAX + 1, 1), (3_000, 1)])
def test_many_parts_of_a_kind_are_told_as_one(count: int, names: int) -> None:
    """A beacon has room for 64 KiB. Whatever differs is seen."""
    text = "".join(f"[[address-setting]]\nmatch = 'a.{number}.{'x' * 200}'\n" for number in range(count))
    one, other = shared(text), shared(text.replace("a.7.", "a.seven."))
    assert len([name for name in one.parts if name.startswith("match")]) == names
    assert len(json.dumps(one.parts)) < 16 * 1024
    assert one.fingerprint != other.fingerprint and one.differences(told(other, one), "a", "b")


def test_many_parts_of_all_kinds_fit_into_a_beacon() -> None:
    """Whatever their names are. The smaller kinds are still told one by one."""
    kinds = ("queue", "user", "vhost", "policy")
    more = {"policy": "pattern = 'x'\n[policy.definition]\nmax-length = 1\n"}
    text = USER.replace("user", "divert").replace("'shop'", "'d'\naddress = 'a'\nforwarding-address = 'b'\n")
    for kind in kinds:
        text += "".join(f"[[{kind}]]\nname = '{n:02}{WIDE * 60}'\n{more.get(kind, '')}" for n in range(PARTS_MAX))
    one, other = shared(HEARTBEAT + text), shared(HEARTBEAT + text.replace("'07", "'seven"))
    assert len(json.dumps(one.parts)) <= OCTETS_MAX
    check_status({"configuration": told(one, other)})
    assert "[broker] heartbeat" in one.parts and "queue (all)" in one.parts
    assert "queue (all)" in one.differences(told(other, one), "a", "b")


def test_many_queues_that_are_not_hosted_fit_into_a_beacon() -> None:
    """Of each node the first ones are told, and how many more there are."""
    lines = {name: [f"{number} {WIDE * 60}" for number in range(50)] for name in "abcd"}
    told = first_lines(lines)
    assert len(json.dumps(told)) < NOT_HOSTED_MAX + 100
    assert all(len(told[name]) > 1 and told[name][:-1] == lines[name][: len(told[name]) - 1] for name in lines)
    assert told["d"][-1] == f"and {50 - len(told['d']) + 1} more"
    assert first_lines({"a": ["one", "two"]}) == {"a": ["one", "two"]}


@pytest.mark.parametrize(
    "said",
    [
        {}, {"fingerprint": None}, {"fingerprint": 7}, {"fingerprint": ["x"]}, {"parts": {"x": "y"}},
        {"fingerprint": "2-x", "parts": {}}, {"fingerprint": "x", "parts": {}},
    ],
)  # fmt: skip
def test_a_node_that_tells_nothing_differs_in_nothing(said: dict[str, Any]) -> None:
    """One of another release."""
    assert shared(HEARTBEAT).differences(said, "a", "b") == [] and not shared().differs_from(said)


@pytest.mark.parametrize("parts", [None, 7, [], "x", {str(number): "x" for number in range(5_000)}])
def test_parts_that_make_no_sense_are_not_read(parts: Any) -> None:
    """Nor kept: what a node says is no larger than its link lets it be, and names in logs are short."""
    assert shared(HEARTBEAT).differences({"fingerprint": "1-x", "parts": parts}, "a", "b") == [
        "parts that it has not sent yet"
    ]
    long = shared(HEARTBEAT).differences({"fingerprint": "1-x", "parts": {"n" * 9_000: {"a": 1}}}, "a", "b")
    assert all(len(name) < 300 for name in long) and len(long) == 2


def test_a_difference_is_logged_once_and_its_end_too(caplog: pytest.LogCaptureFixture) -> None:
    """Again when either configuration has changed, and still differs."""
    a, b = shared(HEARTBEAT), shared()
    with caplog.at_level(logging.INFO, "leveret.cluster"):
        a.warn({"fingerprint": b.fingerprint}, "a", "b")
        assert not caplog.messages, "not before it can be named"
        for other in (b, b, shared(USER), b, a, a):
            a.warn(told(other, a), "a", "b")
    assert [message.partition(": ")[2] for message in caplog.messages[:3]] == [
        "[broker] heartbeat (at a alone)",
        "[broker] heartbeat (at a alone), user 'shop' (at b alone)",
        "[broker] heartbeat (at a alone)",
    ]
    assert len(caplog.messages) == 4 and "no longer differs" in caplog.messages[-1]
