"""A cluster of three nodes as one broker, to which clients are connected through a follower.

    with leveret_follower() as peer:
        connect(peer.url)

`leveret ctl drain` keeps this node from leading, so that it stays a follower when the leader changes.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .local_cluster import NAMES, LocalCluster
from .peers import Peer
from .processes import directory_for

FOLLOWER = NAMES[-1]


@dataclass
class FollowedCluster:
    """The cluster with the interface of one process. A restart restarts the leader."""

    local: LocalCluster

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the follower, to which clients are connected."""
        return self.local.process(FOLLOWER)

    def start(self) -> None:
        """Start all nodes, and drain the follower. Raises: PeerFailed."""
        self.local.start()
        self.local.await_clients()
        self.local.ctl(FOLLOWER, "drain", FOLLOWER)
        self.local.await_in_sync()

    def restart(self, number: signal.Signals) -> None:
        """End the leader by a signal, wait for another leader, start the node again, and wait until all are in sync."""
        local, lost = self.local, self.local.leader_first()[0]
        local.send(lost, number)
        local.wait_until(lambda: not local.is_running(lost), f"{lost} has ended")
        local.wait_until(lambda: local.status().get("leader") not in (None, "", lost), f"{lost} leads no more")
        self.start_again()

    def has_ended(self) -> bool:
        """Whether any node has ended."""
        return not all(self.local.is_running(name) for name in NAMES)

    def start_again(self) -> None:
        """Start the nodes that have ended."""
        self.local.start_ended()


@contextmanager
def leveret_follower(
    *, settings: str = "", broker: str = "", data: Path | None = None, has_tls: bool = False
) -> Iterator[Peer]:
    """Run a fresh cluster of three nodes with journals and three members of etcd.

    `settings`, `broker`, `data`, `has_tls`: of `LocalCluster`. A restart of the peer restarts the leader.

    Raises: FileNotFoundError: etcd is not on this machine. PeerFailed: the cluster did not start.
    """
    with directory_for("follower") as directory:
        place = directory / "log"
        place.mkdir()
        local = LocalCluster(place, settings=settings, broker=broker, data=data, has_tls=has_tls)
        followed = FollowedCluster(local)
        try:
            followed.start()
            yield Peer(
                "leveret",
                local.port(FOLLOWER),
                followed.process.pid,
                directory,
                local.log(FOLLOWER),
                processes=followed,
                console_port=local.port(FOLLOWER, "console"),
                metrics_ports=[local.port(name, "metrics") for name in local.leader_first()],
                tls_port=local.port(FOLLOWER, "amqps") if has_tls else 0,
            )
        finally:
            local.kill()
