"""Observations: the answers of a broker as JSON, without generated names and times."""

from __future__ import annotations

import re
import zlib
from typing import Any

from ..wire.raw_codec import Method
from .channel_state import ChannelState

BODY_CHARACTERS_MAX = 64  # longer bodies are shown by size and checksum
#: Names that the broker generates: queues, consumer tags, reply addresses.
GENERATED = re.compile(r"amq\.(gen|ctag|rabbitmq\.reply-to)[-.][A-Za-z0-9+/=_@.<>-]+")
#: Sent by RabbitMQ's queues independently of the channel, and not after the channel has failed.
FROM_QUEUES = ("basic.consume-ok", "basic.cancel-ok", "basic.cancel", "basic.deliver", "basic.ack", "basic.nack")
_MEANINGLESS = ("ticket", "reserved_1", "reserved_2")


class Names:
    """The names that one broker generated, numbered by their first appearance.

    `has_quorum`: there are quorum queues or streams, so that an x-delivery-count of 0 is the same as none.
    """

    def __init__(self) -> None:
        self.has_quorum = False
        self._alias: dict[str, str] = {}
        self._real: dict[str, list[str]] = {}

    def alias(self, text: str) -> str:
        """`text` with each generated name replaced by its kind and number."""
        return GENERATED.sub(self._of, text) if "amq." in text else text

    def latest(self, kind: str) -> str | None:
        """The newest generated name of a kind ("gen", "ctag", "rabbitmq.reply-to")."""
        names = self._real.get(kind)
        return names[-1] if names else None

    def _of(self, found: re.Match[str]) -> str:
        real, kind = found[0], found[1]
        if real not in self._alias:
            names = self._real.setdefault(kind, [])
            names.append(real)
            self._alias[real] = f"amq.{kind}-{len(names)}"
        return self._alias[real]


def describe(method: Method, names: Names) -> list[Any]:
    """A method as [name, arguments], or with a content as [name, arguments, properties, body]."""
    arguments = {
        name: names.alias(value) if isinstance(value, str) else value
        for name, value in method.arguments.items()
        if name not in _MEANINGLESS
    }
    if method.content is None:
        return [method.name, arguments]
    return [method.name, arguments, _properties(method.content.properties, names), _body(method.content.body)]


def _properties(properties: dict[str, Any], names: Names) -> dict[str, Any]:
    described: dict[str, Any] = {}
    for name, value in properties.items():
        if name == "headers":
            # A list, because the order of headers is compared.
            headers = [[key, *_tagged(tagged, names, within=key)] for key, tagged in value.items()]
            if names.has_quorum:
                headers = [header for header in headers if header[0] != "x-delivery-count" or header[2]]
            if "x-death" in value or names.has_quorum:  # RabbitMQ sorts the headers that it adds to
                headers.sort(key=lambda header: str(header[0]))
            if headers or not names.has_quorum:
                described[name] = headers
        else:
            described[name] = names.alias(value) if isinstance(value, str) else value
    return described


def _tagged(tagged: Any, names: Names, within: str) -> list[Any]:
    tag, value = tagged
    if tag == "F":
        fields = [[key, *_tagged(inner, names, within=f"{within}.{key}")] for key, inner in value.items()]
        if within == "x-death":
            fields.sort(key=lambda field: str(field[0]))  # like RabbitMQ for headers that existed before
        return [tag, fields]
    if tag == "A":
        return [tag, [_tagged(inner, names, within) for inner in value]]
    if isinstance(value, bytes):
        return [tag, names.alias(value.decode("latin-1"))]
    if tag == "L":
        tag = "l"  # the same type; RabbitMQ writes `l` into headers that it changes
    if within == "x-death.time":
        return [tag, "a time" if value else 0]
    return [tag, list(value) if isinstance(value, tuple) else value]


def _body(body: bytes) -> str:
    if len(body) > BODY_CHARACTERS_MAX:
        return f"{len(body)} octets, crc {zlib.crc32(body):08x}"
    return body.decode("latin-1")


def observe(methods: list[Method], state: ChannelState, names: Names) -> dict[str, Any]:
    """Answers, deliveries and confirms, each in their order. The order between these is not observed, except that
    deliveries follow their consume-ok, and confirms follow their returns.
    """
    seen: dict[str, Any] = {}
    known = state.no_ack_tags
    confirmed: dict[str, set[int]] = {}
    returned = 0
    for method in methods:
        if method.name in ("basic.ack", "basic.nack"):
            tags = state.covered(method)
            state.unconfirmed -= tags
            confirmed.setdefault(method.name, set()).update(tags)
            continue
        if method.name == "basic.return" and sum(map(len, confirmed.values())) > returned:
            seen["confirmed before the return"] = True
        returned += method.name == "basic.return"
        if method.name == "basic.deliver":
            if not seen.get("answers") and any(
                m.name == "basic.consume-ok" and m["consumer_tag"] == method["consumer_tag"] for m in methods
            ):
                seen["delivered before consume-ok"] = True
            seen.setdefault("deliveries", []).append(describe(method, names))
            if method["consumer_tag"] not in known:
                state.outstanding.append(method["delivery_tag"])
            continue
        if method.name == "basic.get-ok" and "get no_ack" not in known:
            state.outstanding.append(method["delivery_tag"])
        seen.setdefault("answers", []).append(describe(method, names))
    # RabbitMQ cancels a deleted queue's consumers by their tags, which it generates at random.
    seen.get("answers", []).sort(key=lambda answer: answer[1]["consumer_tag"] if answer[0] == "basic.cancel" else "")
    for name, confirms in confirmed.items():
        seen[name] = sorted(confirms)
    return seen


def in_no_order(seen: dict[str, Any]) -> dict[str, Any]:
    """The observations of a batch, without the order that depends on timing in RabbitMQ.

    Its queues answer basic.consume and basic.cancel later than the channel answers later methods, and count their
    messages before publishes in the same mailbox. Confirms and returns of several publishes have no order, either.
    """
    seen.pop("confirmed before the return", None)
    answers = seen.get("answers", [])
    consuming = sorted((answer for answer in answers if answer[0] in FROM_QUEUES), key=str)
    for answer in [answer for answer in consuming if answer[0] == "basic.cancel"]:
        if ["basic.cancel-ok", {"consumer_tag": answer[1]["consumer_tag"]}] in consuming:
            consuming.remove(answer)  # of a queue that is deleted meanwhile: RabbitMQ sends the cancel or not
    others = [_uncounted(answer) for answer in answers if answer[0] not in FROM_QUEUES]
    return {kind: what for kind, what in {**seen, "answers": others, "consuming": consuming}.items() if what}


def _uncounted(answer: list[Any]) -> list[Any]:
    return [answer[0], {"queue": answer[1]["queue"]}] if answer[0] == "queue.declare-ok" else answer
