"""What a publisher meets that finds no room: one node, and whether it waits for it."""

from dataclasses import dataclass

from .usage import Usage


@dataclass(slots=True, frozen=True)
class Blocker:
    """One full node, as a publisher meets it. `fails`: it is refused; `fails_after_ms`: when it has waited so long.

    `node`: what to wait for (`FlowControl.wait`).
    """

    node: Usage
    fails: bool
    fails_after_ms: int

    @property
    def destination(self) -> str:
        """Whose limit it is."""
        return self.node.destination

    @property
    def limit(self) -> str:
        """Which one: memory, store, temp, or the key that sets it, as max-size-bytes; alarm or disk."""
        return self.node.limit_name

    @property
    def reason(self) -> str:
        """What clients are told."""
        return self.node.reason

    @property
    def concerns_all(self) -> bool:
        """Whether it is a limit of the whole broker, or an alarm (queues page E.4, row 3)."""
        return self.node.is_root

    @property
    def is_alarm(self) -> bool:
        """Whether nothing is used up: an operator says so, or the disk takes nothing."""
        return not self.node.is_fed
