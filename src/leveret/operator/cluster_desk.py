"""What an operator can see and do of a cluster, through the node that leads it."""

from collections.abc import Mapping
from typing import Any, Protocol

from ..console.cluster import ClusterFacts


class ClusterDesk(Protocol):
    """Each answer is for JSON. Errors are `CommandError`. `handover`, `drain`, `revive`, `forget` and `raise_level`
    refuse or begin: what becomes of them is in the next `status`.
    """

    def status(self) -> dict[str, Any]:
        """Nodes with their states, term, end and lag; the in-sync set; what is agreed."""

    def history(self) -> dict[str, Any]:
        """The leaders and the nodes in sync over time, as the leader's process has seen them since its start."""

    def configurations(self) -> dict[str, Any]:
        """How the configurations of the other nodes differ from the leader's, and how their last reloads went."""

    def compare(self, said: Mapping[str, object]) -> dict[str, Any]:
        """How a configuration differs from the leader's. `said`: its fingerprint and parts, and its node's name."""

    def reload(self) -> dict[str, Any]:
        """Let the other nodes read their configuration files; `configurations` tells what comes of it."""

    def facts(self) -> ClusterFacts:
        """What the console shows of the cluster."""

    def handover(self, node: str | None) -> dict[str, Any]:
        """Hand the lead over to a node, or to whichever has the most."""

    def drain(self, node: str) -> dict[str, Any]:
        """Let a node not lead until it is revived."""

    def revive(self, node: str) -> dict[str, Any]:
        """Let a drained node lead again."""

    def raise_level(self) -> dict[str, Any]:
        """Raise the level of the journal to what the newest node reads."""

    def forget(self, node: str) -> dict[str, Any]:
        """Forget a node that is down, and not needed."""
