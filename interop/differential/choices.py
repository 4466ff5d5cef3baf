"""The choices in programs: valid and invalid names, arguments and properties."""

from __future__ import annotations

import random
from typing import Any

QUEUES = ("q0", "q1", "q2", "q3")
INTEGERS = ("I", "l", "s", "b", "B", "u", "i", "L")


class Chooser:
    """Makes choices, by a seed or as a property test wants."""

    def below(self, end: int) -> int:
        """A number from 0 to end - 1."""
        raise NotImplementedError

    def one(self, *items: Any) -> Any:
        return items[self.below(len(items))]

    def rarely(self, once_in: int) -> bool:
        """True once in `once_in` times, on average."""
        return self.below(once_in) == once_in - 1


class Seeded(Chooser):
    """Makes choices by a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = random.Random(seed)

    def below(self, end: int) -> int:
        return self._random.randrange(end)


def bad_value(choose: Chooser) -> list[Any]:
    """A value that is invalid for most arguments."""
    value: list[Any] = choose.one(
        *(["S", "x"], ["I", -1], ["t", True], ["V", None], ["d", 1.5], ["I", 0], ["l", 2**40], ["S", ""]),
        *(["F", {"a": ["I", 1]}], ["A", [["I", 1]]], ["T", 1], ["D", [0, 5]], ["f", 2.0], ["x", "ab"], ["I", 256]),
    )
    return value


def _queue_argument(choose: Chooser) -> tuple[str, list[Any]]:
    number = choose.one(*INTEGERS) if choose.rarely(3) else "I"
    name, value = choose.one(
        ("x-max-length", [number, choose.one(1, 2, 0, 3)]),
        ("x-dead-letter-exchange", ["S", choose.one("", "e0", "e1", "e2", "e3", "missing")]),
        ("x-overflow", ["S", choose.one("drop-head", "reject-publish", "reject-publish-dlx")]),
        ("x-dead-letter-routing-key", ["S", choose.one("q0", "q1", "q2", "q3", "a.b", "")]),
        ("x-message-ttl", [number, choose.one(0, 100)] if choose.rarely(4) else ["l", 100_000_000]),
        ("x-max-priority", [number, choose.one(2, 1, 5, 0)]),
        ("x-single-active-consumer", ["t", choose.one(True, False)]),
        ("x-max-length-bytes", [number, choose.one(10, 3, 0)]),
        ("x-expires", ["l", 100_000_000]),
        ("x-queue-mode", ["S", choose.one("lazy", "default", "foo")]),
        ("x-queue-type", ["S", choose.one("classic", "classic", "foo")]),
        ("x-queue-version", [number, choose.one(1, 2, 3)]),
        ("x-unknown", ["S", "1"]),
        ("x-delivery-limit", ["I", 2]),
        ("x-max-age", ["S", "1D"]),
        ("x-quorum-initial-group-size", ["I", 1]),
        ("x-dead-letter-strategy", ["S", "at-most-once"]),
        ("x-max-in-memory-length", ["I", 1]),
        ("x-stream-max-segment-size-bytes", ["I", 1]),
        ("x-queue-leader-locator", ["S", "balanced"]),
    )
    if value[1] == 100 and name == "x-message-ttl":
        value = ["l", 315_360_000_000 + choose.one(0, 1)]
    return name, (bad_value(choose) if choose.rarely(24) else value)


def good_queue_arguments(choose: Chooser) -> dict[str, Any]:
    """Valid arguments of a queue."""
    arguments: dict[str, Any] = {}
    for _ in range(choose.one(0, 1, 1, 2, 3)):
        name, value = choose.one(
            ("x-max-length", ["I", choose.one(1, 2, 3, 0)]),
            ("x-max-length-bytes", ["I", choose.one(10, 3, 30)]),
            ("x-overflow", ["S", choose.one("drop-head", "reject-publish", "reject-publish-dlx")]),
            ("x-message-ttl", ["l", choose.one(0, 100_000_000, 100_000_000)]),
            ("x-max-priority", ["I", choose.one(2, 5)]),
            ("x-single-active-consumer", ["t", True]),
            ("x-queue-mode", ["S", "lazy"]),
            ("x-queue-version", ["I", 2]),
            *(("x-dead-letter-exchange", ["S", choose.one("", "e0", "e1", "e2", "e3")]),) * 3,
            *(("x-dead-letter-routing-key", ["S", choose.one("q0", "q1", "q2", "q3", "a.b")]),) * 2,
        )
        arguments[name] = value
    if "x-dead-letter-routing-key" in arguments:
        arguments.setdefault("x-dead-letter-exchange", ["S", choose.one("", "e2")])
    return arguments


def quorum_arguments(choose: Chooser) -> dict[str, Any]:
    """Arguments of a quorum queue, of which a few are refused.

    RabbitMQ applies reject-publish and at-least-once dead-lettering only approximately, so these are left out.
    """
    arguments: dict[str, Any] = {"x-queue-type": ["S", "quorum"]}
    for _ in range(choose.one(0, 1, 1, 2, 3)):
        name, value = choose.one(
            *(("x-delivery-limit", ["I", choose.one(1, 2, 0, 3)]),) * 3,
            ("x-max-length", ["I", choose.one(1, 2, 3)]),
            ("x-max-length-bytes", ["I", choose.one(10, 30)]),
            ("x-overflow", ["S", "drop-head"]),
            ("x-quorum-initial-group-size", ["I", 1]),
            ("x-max-in-memory-length", ["I", 1]),
            ("x-queue-leader-locator", ["S", choose.one("client-local", "balanced", "foo")]),
            ("x-dead-letter-strategy", ["S", "at-most-once"]),
            ("x-single-active-consumer", ["t", True]),
            ("x-expires", ["l", 100_000_000]),
            ("x-message-ttl", ["l", 100_000_000]),
            *(("x-dead-letter-exchange", ["S", choose.one("", "e0", "e1", "e2", "e3")]),) * 3,
            *(("x-dead-letter-routing-key", ["S", choose.one("q0", "q1", "q2", "q3", "a.b")]),) * 2,
        )
        arguments[name] = value
    if choose.rarely(10):
        name, value = choose.one(
            ("x-max-priority", ["I", 2]), ("x-queue-mode", ["S", "lazy"]), ("x-overflow", ["S", "reject-publish-dlx"])
        )
        arguments[name] = value
    if "x-dead-letter-routing-key" in arguments:
        arguments.setdefault("x-dead-letter-exchange", ["S", choose.one("", "e2")])
    return arguments


def queue_arguments(choose: Chooser) -> dict[str, Any]:
    """Valid and invalid arguments of a queue."""
    arguments = {}
    for _ in range(choose.one(0, 1, 1, 2, 3)):
        name, value = _queue_argument(choose)
        arguments[name] = value
    if "x-dead-letter-routing-key" in arguments and not choose.rarely(12):
        arguments.setdefault("x-dead-letter-exchange", ["S", choose.one("", "e2")])
    return arguments


def headers(choose: Chooser, *, careful: bool = False) -> dict[str, Any]:
    """The headers of a message."""
    headers = {}
    for _ in range(choose.one(1, 0, 2, 4)):
        name = choose.one("h1", "h2", "x-h", "CC", "BCC", "x-death", "name", "BCC", "CC")
        if name in ("CC", "BCC"):
            value = ["A", [["S", choose.one(*QUEUES, "a.b")] for _ in range(choose.one(1, 2, 0))]]
            if not careful and choose.rarely(12):
                value = choose.one(["S", "q0"], ["A", [["I", 1], ["S", "q1"]]], ["V", None])
        elif name == "x-death":
            value = choose.one(
                ["S", "q0"],
                ["A", []],
                ["A", [["F", {"queue": ["S", "q0"], "reason": ["S", "rejected"], "count": ["l", 4]}]]],
            )
        else:
            value = header_value(choose, 0)
        headers[name] = value
    return headers


def header_value(choose: Chooser, depth: int) -> list[Any]:
    kind = choose.one("S", "I", "t", "V", "l", "d", "b", "B", "s", "u", "i", "L", "f", "D", "T", "x", "F", "A")
    values = {
        "S": ("1", "", "two", "\u00e4"),
        "t": (True, False),
        "V": (None,),
        "d": (1.0, -0.5, 1e300),
        "f": (1.0, 0.25),
        "D": ([0, 1], [2, 314]),
        "T": (1, 0, 1_700_000_000),
        "x": ("1", ""),
    }
    if kind == "F":
        return [kind, {} if depth > 1 else {"a": header_value(choose, depth + 1)}]
    if kind == "A":
        return [kind, [] if depth > 1 else [header_value(choose, depth + 1) for _ in range(choose.one(1, 0, 2))]]
    return [kind, choose.one(*values.get(kind, (1, 2, 100)))]


def properties(choose: Chooser, *, careful: bool = False) -> dict[str, Any]:
    """The properties of a message. `careful`: only valid ones."""
    properties: dict[str, Any] = {}
    for _ in range(choose.one(0, 0, 1, 1, 2, 4)):
        name = choose.one(
            *("delivery_mode", "priority", "headers", "headers", "headers", "expiration", "content_type", "reply_to"),
            *("correlation_id", "content_encoding", "message_id", "timestamp", "type", "user_id", "app_id"),
            "cluster_id",
        )
        if name == "headers":
            value: Any = headers(choose, careful=careful)
        elif name == "delivery_mode":
            value = choose.one(2, 1) if careful or not choose.rarely(60) else choose.one(0, 255)
        elif name == "priority":
            value = choose.one(1, 2, 0, 3, 9, 255)
        elif name == "expiration":
            good = ("100000000", "100000000", "0", "0")
            value = choose.one(*good, *(() if careful else ("abc", "-1", "1.5", "", " 10", "315360000001", "10s")))
        elif name == "timestamp":
            value = choose.one(1_700_000_000, 0, 2**63)
        elif name == "user_id":
            value = "guest" if careful else choose.one("guest", "guest", "other", "")
        elif name == "reply_to":
            value = choose.one("q0", "") if careful else choose.one("q0", "", "amq.rabbitmq.reply-to")
        else:
            value = choose.one("text", "", "\u00e4\u20ac", "x" * 255)
        properties[name] = value
    return properties


def binding_arguments(choose: Chooser, *, careful: bool = False) -> dict[str, Any]:
    """The arguments of a binding to a headers exchange. `careful`: only valid ones."""
    arguments: dict[str, Any] = {}
    if choose.rarely(2):
        arguments["x-match"] = [
            "S",
            choose.one("all", "any", *(() if careful else ("all-with-x", "any-with-x", "foo"))),
        ]
        if not careful and choose.rarely(20):
            arguments["x-match"] = bad_value(choose)
    for _ in range(choose.one(1, 0, 2)):
        name = choose.one("h1", "h2", "x-h")
        arguments[name] = ["V", None] if choose.rarely(5) else header_value(choose, 1)
    return arguments
