"""The reason why a publish is not accepted now: a full node, and whether the publisher may wait for it."""

from dataclasses import dataclass

from .usage import Usage


@dataclass(slots=True, frozen=True)
class Blocker:
    """A full node and its effect on one publish.

    `node`: the node to wait for (`FlowControl.wait`). `fails`: the publish is refused at once; `fails_after_ms`: it is
    refused after this wait (0: never).
    """

    node: Usage
    fails: bool
    fails_after_ms: int

    @property
    def destination(self) -> str:
        """The owner of the limit: a queue, an address, or the broker."""
        return self.node.destination

    @property
    def limit(self) -> str:
        """The name of the limit: memory, store, temp, the key that sets it (max-size-bytes), alarm, or disk."""
        return self.node.limit_name

    @property
    def reason(self) -> str:
        """The text that clients receive."""
        return self.node.reason

    @property
    def concerns_all(self) -> bool:
        """Whether the limit is the broker's, or an alarm (queues page E.4, row 3)."""
        return self.node.is_root

    @property
    def is_alarm(self) -> bool:
        """Whether an alarm blocks, raised by an operator or by a full disk, and not a limit."""
        return not self.node.is_limit
