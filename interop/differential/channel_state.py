"""The state of a channel that a client knows: deliveries to settle, consumers, publishes to be confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..wire.raw_codec import Method

Operation = Mapping[str, Any]


@dataclass(slots=True)
class ChannelState:
    """The state of one channel, from what its client has sent and received."""

    outstanding: list[int] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)  # of its consumers
    transacts: bool = False
    no_ack_tags: set[str] = field(default_factory=set)
    may_receive: bool = False  # at any time, since it has a consumer or confirms
    published: int = 0  # since confirm.select
    confirms: bool = False
    unconfirmed: set[int] = field(default_factory=set)

    def note(self, name: str, values: Mapping[str, Any]) -> None:
        """Record a method that is sent."""
        if name in ("confirm.select", "basic.consume"):
            self.may_receive = True
        if name == "confirm.select":
            self.confirms = True
        elif name == "tx.select":
            self.transacts = True
        elif name == "basic.cancel":
            self.tags.discard(values["consumer_tag"])
        elif name == "basic.consume":
            self.tags.add(values["consumer_tag"])
            (self.no_ack_tags.add if values.get("no_ack") else self.no_ack_tags.discard)(values["consumer_tag"])
        elif name == "basic.get":
            (self.no_ack_tags.add if values.get("no_ack") else self.no_ack_tags.discard)("get no_ack")
        elif name in ("basic.ack", "basic.nack", "basic.reject"):
            tag = values["delivery_tag"]
            settled = [t for t in self.outstanding if t == tag or values.get("multiple") and (t <= tag or tag == 0)]
            self.outstanding = [t for t in self.outstanding if t not in settled]
        elif name in ("basic.recover", "basic.recover-async"):
            self.outstanding.clear()

    def note_publish(self) -> None:
        if self.confirms:
            self.published += 1
            self.unconfirmed.add(self.published)

    def covered(self, method: Method) -> set[int]:
        """The publishes that an ack or nack of the broker confirms."""
        if method["multiple"]:
            return {tag for tag in self.unconfirmed if tag <= method["delivery_tag"]}
        return {method["delivery_tag"]}

    def finds_pointless(self, operation: Operation) -> bool:
        """Whether an operation is pointless on this channel, so that a careful client would not send it."""
        name = operation["op"]
        if name in ("basic.ack", "basic.nack", "basic.reject"):
            return not self.outstanding
        if name == "basic.consume":
            return operation["consumer_tag"] in self.tags
        if name in ("tx.commit", "tx.rollback"):
            return not self.transacts
        if name == "tx.select":
            return self.confirms
        if name == "confirm.select":
            return self.transacts
        return False

    def cannot_follow(self, operation: Operation, sent: list[Operation]) -> bool:
        """Whether the result of an operation depends on timing if it follows `sent` in one batch."""
        if operation["op"] == "basic.get" and self.tags:
            return True  # its delivery tag is counted with those of deliveries to consumers
        if "delivery_tag" in operation and not self.outstanding:
            return True
        if operation["op"] != "basic.cancel":
            return False
        # RabbitMQ may end the connection with 541 when its consume-ok comes after the cancel.
        return any(operation["consumer_tag"] == other.get("consumer_tag") for other in sent)
