"""Pairs of declarations: what is there, and what is declared under the same name; each pair with its answer.

Values of arguments are written as in `leveret.interop.wire.raw_codec`, so that each has its type on the wire.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from rawclient import Client

from leveret.interop.wire.loopback import LOOPBACK

Arguments = dict[str, Any]
#: Code and text of channel.close, and the same behind "connection" of connection.close; None: it was accepted. The
#: name of what is declared is NAME.
Answer = list[Any] | None
FIVE = [
    ("l", 5),
    ("b", 5),
    ("L", 5),
    ("T", 5),
    ("d", 5.0),
    ("D", (0, 5)),
    ("S", "5"),
    ("t", True),
    ("V", None),
    ("l", 6),
]
SOME = [("l", 70_000), ("I", 70_000), ("i", 70_001), ("T", 70_000), ("f", 70_000.0)]
FLAGS = [("t", True), ("t", False), ("l", 1), ("S", "true"), ("V", None)]


def _words(*words: str) -> list[Any]:
    first = words[0]
    odd = [("x", first.encode()), ("S", ""), ("l", 1), ("V", None), ("A", [("S", first)]), ("F", {"a": ("S", first)})]
    return [*(("S", word) for word in words), *odd]


#: Queue type -> argument -> values.
VALUES: dict[str, dict[str, list[Any]]] = {
    "classic": {
        "x-max-length": [*FIVE, ("l", -1), ("l", 0)],
        "x-message-ttl": [("l", 1), ("d", 1.0), ("l", 0), ("T", 1)],
        "x-expires": SOME,
        "x-max-length-bytes": SOME,
        "x-max-priority": [("l", 5), ("b", 5), ("l", 0), ("l", 255), ("l", 256)],
        "x-dead-letter-exchange": _words("letters", "others"),
        "x-overflow": _words("drop-head", "reject-publish"),
        "x-queue-mode": _words("default", "lazy"),
        "x-queue-master-locator": [("S", "min-masters"), ("S", "client-local"), ("S", "random"), ("l", 1), ("V", None)],
        "x-single-active-consumer": FLAGS,
        "x-queue-type": [("S", "classic"), ("x", b"classic"), ("S", "quorum"), ("S", "stream"), ("S", "other")],
        "x-ha-policy": _words("all", "nodes"),
        "x-unknown": [("l", 1), ("l", 2), ("S", "a"), ("F", {"a": ("l", 1)})],
        "x-queue-leader-locator": [("S", "balanced")],
        "x-quorum-initial-group-size": [("l", 3)],
    },
    "quorum": {
        "x-quorum-initial-group-size": [("l", 3), ("b", 3), ("l", 5), ("T", 3), ("l", 0), ("S", "3")],
        "x-queue-leader-locator": _words("balanced", "client-local", "random", "least-leaders"),
        "x-delivery-limit": [("l", 5), ("b", 5), ("l", 6)],
        "x-max-length": [("l", 5), ("I", 5), ("l", 6), ("V", None)],
        "x-dead-letter-strategy": _words("at-most-once", "at-least-once"),
        "x-overflow": [("S", "drop-head"), ("S", "reject-publish")],
        "x-queue-type": [("S", "classic"), ("S", "stream"), ("V", None)],
        "x-queue-mode": [("S", "lazy")],
    },
    "stream": {
        "x-initial-cluster-size": [("l", 3), ("b", 3), ("l", 5), ("l", 0), ("S", "3")],
        "x-queue-leader-locator": [("S", "balanced"), ("S", "random"), ("S", "nearest")],
        "x-max-age": [("S", "1D"), ("S", "24h"), ("x", b"1D")],
        "x-max-length-bytes": SOME,
        "x-stream-max-segment-size-bytes": [("l", 70_000), ("s", 700)],
    },
}
#: Several arguments at once: their order, and which difference is named.
TOGETHER: dict[str, list[Arguments]] = {
    "classic": [
        {"x-max-length": ("l", 5), "x-message-ttl": ("l", 6), "x-expires": ("l", 70_000)},
        {"x-expires": ("l", 70_000), "x-message-ttl": ("l", 6), "x-max-length": ("l", 5)},
        {"x-max-length": ("l", 9), "x-message-ttl": ("l", 9), "x-expires": ("l", 70_000)},
        {"x-dead-letter-exchange": ("S", "d"), "x-dead-letter-routing-key": ("S", "k")},
        {"x-dead-letter-exchange": ("S", "d"), "x-dead-letter-routing-key": ("S", "")},
        {"x-dead-letter-routing-key": ("S", "k")},
    ],
    "quorum": [
        {"x-max-length": ("l", 5), "x-message-ttl": ("l", 6), "x-delivery-limit": ("l", 3)},
        {"x-delivery-limit": ("l", 3), "x-message-ttl": ("l", 6), "x-max-length": ("l", 5)},
        {"x-max-length": ("l", 9), "x-message-ttl": ("l", 9), "x-delivery-limit": ("l", 9)},
    ],
}


class Group(NamedTuple):
    """Fields of a first declaration, and of those that follow it under the same name."""

    kind: str  # queue, exchange
    first: Arguments
    then: Sequence[Arguments]

    def key(self, then: Arguments) -> str:
        """The name of a row."""
        return json.dumps([self.kind, self.first, then], default=lambda octets: octets.decode("latin-1"))


def _queues() -> Iterator[list[Arguments]]:
    """Declarations of queues, to be compared among each other."""
    for kind, values_of in VALUES.items():
        named = {} if kind == "classic" else {"x-queue-type": ("S", kind)}
        tables = [[{key: value} for value in values] for key, values in values_of.items()]
        for table in (*tables, TOGETHER.get(kind, [])):
            yield [{"durable": True, "arguments": {**named, **one}} for one in ({}, *table)]


def _exchanges() -> Iterator[list[Arguments]]:
    alternates = [{}, *({"alternate-exchange": value} for value in _words("other", "another")), {"x-unknown": ("l", 1)}]
    yield [{"type": "direct", "arguments": one} for one in alternates]
    flags = [dict(zip(("durable", "auto_delete", "internal"), bits)) for bits in product((False, True), repeat=3)]
    yield [{"type": kind, **one} for one in flags for kind in ("direct", "x-random")]


def groups(*, is_all: bool = False) -> Iterator[Group]:
    """`is_all`: each declaration with each of its table; else with the first two, of the flags of queues each third."""
    firsts = slice(None if is_all else 2)
    for kind, tables in (("queue", _queues()), ("exchange", _exchanges())):
        for table in tables:
            yield from (Group(kind, first, table) for first in table[firsts])
    flags = [dict(zip(("durable", "exclusive", "auto_delete"), bits)) for bits in product((False, True), repeat=3)]
    yield from (Group("queue", first, flags) for first in (flags if is_all else flags[::3]))


def answers(port: int, *, is_all: bool = False) -> Iterator[tuple[str, Answer]]:
    """Each row, with what a broker answers to the later declaration; where the first is refused, one row of that."""
    client = Client.open(LOOPBACK, port)
    for number, group in enumerate(groups(is_all=is_all)):
        name = f"p.{number}"
        client, refused = _declare(client, port, group.kind, name, group.first)
        if refused is None:
            for then in group.then:
                client, answer = _declare(client, port, group.kind, name, then)
                yield group.key(then), answer
            client.call(f"{group.kind}.delete", **{group.kind: name})
        else:
            yield group.key({}), ["first", *refused]
    client.close()


def _declare(client: Client, port: int, kind: str, name: str, fields: Arguments) -> tuple[Client, Answer]:
    """The answer, and a client whose channel 1 is open."""
    client.send(f"{kind}.declare", **{kind: name}, **fields)
    method = client.read()
    if method.name == f"{kind}.declare-ok":
        return client, None
    close = [method["reply_code"], " ".join(method["reply_text"].replace(f"'{name}'", "'NAME'").split())]
    if method.name == "channel.close":
        client.send("channel.close-ok")
        client.call("channel.open")
        return client, close
    assert method.name == "connection.close", method
    client.send("connection.close-ok", channel=0)
    client.abort()
    return Client.open(LOOPBACK, port), ["connection", *close]


def differing(theirs: Mapping[str, Answer], ours: Mapping[str, Answer]) -> dict[str, tuple[Answer, Answer]]:
    """What RabbitMQ and Leveret answer otherwise. Where RabbitMQ fails, with 541, Leveret refuses with 406."""
    found = {}
    for key in theirs | ours:
        their, our = theirs.get(key, []), ours.get(key, [])
        has_failed = their is not None and their[-2:] == [541, "INTERNAL_ERROR"]
        is_alike = our is not None and 406 in our[:2] if has_failed else our == their
        if not is_alike:
            found[key] = (their, our)
    return found
