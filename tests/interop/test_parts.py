"""The parts of the scenario runner: reading frames off the line, values, the gate, what is missing."""

import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leveret.interop.differential.comparison import Known, judge
from leveret.interop.running.driver import Driver, DriverFailed
from leveret.interop.running.scorecard import first_line
from leveret.interop.running.suite import Gate
from leveret.interop.running.toolchains import NotHere, Toolchain
from leveret.interop.running.values import body_of, difference, plain, typed, typed_table
from leveret.interop.wire.raw_codec import HEARTBEAT
from leveret.interop.wire.tap import Direction

FRAMES = b"AMQP\0\0\x09\x01" + b"".join(
    kind.to_bytes(1, "big") + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"
    for kind, channel, payload in [
        (8, 0, b""),
        (1, 1, b"method"),
        (2, 1, b"header one"),
        (2, 2, b"header two"),
        (3, 2, b"of two"),
        (3, 1, b"of "),
        (3, 1, b"one"),
    ]
)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, len(FRAMES)])
def test_frames_are_read_however_they_are_cut(size: int) -> None:
    """Contents by channel, heartbeats counted, whatever the reads were."""
    direction = Direction()
    for begin in range(0, len(FRAMES), size):
        direction.feed(FRAMES[begin : begin + size])
    assert [(content.header, bytes(content.body)) for content in direction.contents] == [
        (b"header one", b"of one"),
        (b"header two", b"of two"),
    ]
    assert direction.counts[HEARTBEAT] == 1


@pytest.mark.parametrize(
    ("written", "kind", "answered"),
    [
        (True, "t", True),
        (5, "I", 5),
        (5_000_000_000, "l", 5_000_000_000),
        (0.5, "d", 0.5),
        ("a", "S", "a"),
        (["a", 1], "A", ["a", 1]),
        ({"F": {"a": {"b": -1}}}, "F", {"a": -1}),
        ({"x": "AP8="}, "x", {"x": "AP8="}),
        ({"x": "YQ=="}, "x", "a"),
        ({"V": True}, "V", None),
        ({"D": [2, 5]}, "D", {"D": [2, 5]}),
    ],
)
def test_values(written: Any, kind: str, answered: Any) -> None:
    """What a scenario writes, its type towards the driver, and the plain answer that is expected."""
    with_type = typed(written)
    assert list(with_type) == [kind]
    assert plain(with_type) == answered


def test_what_a_client_cannot_write_is_left_out_wherever_it_hides() -> None:
    """A list goes when a value in it has such a type."""
    assert typed_table({"a": 1, "b": [{"b": 1}], "c": "x"}, {"b"}).keys() == {"a", "c"}


@pytest.mark.parametrize("wrong", [{"a": 1, "b": 2}, {}, {"Q": 1}, None])
def test_a_value_without_a_type_is_refused(wrong: Any) -> None:
    """A table says F."""
    with pytest.raises(ValueError, match="with its type"):
        typed(wrong)


def test_bodies() -> None:
    """Text, so many octets, or base64."""
    assert (body_of("ä"), body_of({"size": 300})[255:258], body_of({"base64": "AA=="})) == (
        b"\xc3\xa4",
        b"\xff\0\1",
        b"\0",
    )


@pytest.mark.parametrize(
    ("expected", "seen", "same"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"b": 2}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": False}, {"a": 0}, False),
        ([1, 2], [1, 2, 3], False),
        ("a*", "abc", True),
        ("a*", "b", False),
        ("?", "", False),
        (0.1, 0.10000000149, True),
        (0.5, "0.5", False),
        (None, {"a": 1}, False),
    ],
)
def test_difference(expected: Any, seen: Any, same: bool) -> None:
    """What is not named may be anything; what is named is compared, with its type."""
    assert (difference(expected, seen) == "") is same


def test_the_gate_opens_once_for_all() -> None:
    """Three meet, one leaves early: the control is called once, and the two go on after it."""
    called: list[int] = []
    gate = Gate({"restart": lambda: called.append(1)}, 3)
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: (gate.control("restart"), seen.append(len(called)))) for _ in range(2)]
    for thread in threads:
        thread.start()
    gate.leave()
    for thread in threads:
        thread.join()
    assert (called, seen) == ([1], [1, 1])


def test_a_control_that_fails_is_told_to_all() -> None:
    """Nobody waits for ever."""

    def fails() -> None:
        raise OSError("no")

    with pytest.raises(DriverFailed, match="restart: no"):
        Gate({"restart": fails}, 1).control("restart")


@pytest.mark.parametrize(
    ("toolchain", "reason"),
    [
        (Toolchain("c", "go", (), programs=("no-such-program",)), "no no-such-program on the PATH"),
        (Toolchain("c", "go", (), modules=("no_such_module",)), "no Python module no_such_module"),
        (Toolchain("c", "go", (), checks=((("false",), "install it"),)), "install it"),
        (Toolchain("c", "go", (), build=(("sh", "-c", "echo the reason; exit 3"),)), "the reason"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, toolchain: Toolchain, reason: str) -> None:
    """The reason that the end of a run shows beside the client's name."""
    with pytest.raises(NotHere, match=reason):
        toolchain.prepare(tmp_path, lambda text: None)


def test_a_module_without_a_spec_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """kombu puts such a module in its own place, once another test of the same process has imported it."""
    monkeypatch.setitem(sys.modules, "no_such_module", ModuleType("no_such_module"))
    assert Toolchain("c", "go", (), modules=("no_such_module",)).missing() == ""


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("echo trouble >&2; exit 1", "trouble"),
        ("echo no json", "no JSON"),
    ],
)
def test_a_driver_that_fails_says_why(tmp_path: Path, program: str, reason: str) -> None:
    """With the end of what it wrote."""
    with pytest.raises(DriverFailed, match=reason):
        Driver(["sh", "-c", program], tmp_path / "log")


def test_last_deliveries_excuse_nothing_else() -> None:
    """Deliveries to the connection that ended are left out, and what we keep of them stays; another connection's, or
    other counts, are a difference."""
    close = {"answers": [["connection.close", {"reply_code": 530}]]}
    delivered = {"deliveries": [["basic.deliver", {"consumer_tag": "t1"}, {}, "1.0"]]}
    operation = {"op": "basic.consume"}
    got = {"1/0": close, "ended": [1], "queues": {"q0": [1, 0]}}
    known = judge(operation, got | {"1/2": delivered}, got)
    assert isinstance(known, Known) and known.name == "last-deliveries"
    assert judge(operation, got | {"0/2": delivered}, got) is True
    assert judge(operation, got | {"1/2": delivered, "queues": {"q0": [0, 0]}}, got) is known
    assert judge(operation, got | {"1/2": delivered, "queues": {"q0": [2, 0]}}, got) is True
    assert judge(operation, got | {"1/2": delivered, "queues": {"q0": [0, 1]}}, got) is True
    two = got | {"queues": {"q0": [2, 0]}}
    assert judge(operation, two | {"1/2": delivered, "queues": {"q0": [0, 0]}}, two) is True
    assert judge(operation, got | {"1/2": delivered | {"answers": [["basic.cancel", {}]]}}, got) is True


def test_a_scorecard_tells_no_folders() -> None:
    """Of what a client said the first line, without where the machine keeps its files; addresses stay."""
    said = 'no answer from amqp://127.0.0.1:5672/v: "/home/me/env/lib/python3/client.py", line 7\nTraceback'
    assert first_line(said) == 'no answer from amqp://127.0.0.1:5672/v: "client.py", line 7'
