"""A cluster of three nodes as one broker, to which clients are connected through a follower.

    with leveret_follower() as peer:
        connect(peer.url)

`leveret ctl drain` keeps this node from leading, so that it stays a follower when the leader changes.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .local_cluster import NAMES, LocalCluster
from .peers import Peer
from .processes import POLL_SECONDS, START_SECONDS_MAX, PeerFailed, directory_for, end_of

FOLLOWER = NAMES[-1]
CTL_SECONDS_MAX = 60.0


@dataclass
class FollowedCluster:
    """The cluster with the interface of one process. A restart restarts the leader."""

    local: LocalCluster
    leader: str = field(default="", init=False)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the follower, to which clients are connected."""
        return self.local.process(FOLLOWER)

    def start(self) -> None:
        """Start all nodes, and drain the follower. Raises: PeerFailed."""
        self.local.start()
        for name in self.local.names:
            self._await(partial(self.local.accepts, name), f"{name} accepts clients")
        self.ctl("drain", FOLLOWER)
        self._await_in_sync()

    def restart(self, number: signal.Signals) -> None:
        """End the leader by a signal, wait for another leader, start the node again, and wait until all are in sync."""
        lost = self.leader
        self.local.send(lost, number)
        self._await(lambda: not self.local.is_running(lost), f"{lost} has ended")
        self._await(lambda: self.status().get("leader") not in (None, "", lost), f"{lost} leads no more")
        self.local.start_node(lost)
        self._await_in_sync()

    def leader_first(self) -> list[str]:
        """The names of the nodes, the leader's first."""
        return sorted(self.local.names, key=lambda name: name != self.leader)

    def has_ended(self) -> bool:
        """Whether any node has ended."""
        return not all(self.local.is_running(name) for name in self.local.names)

    def start_again(self) -> None:
        """Start the nodes that have ended."""
        for name in self.local.names:
            if not self.local.is_running(name):
                self.local.start_node(name)
        self._await_in_sync()

    def ctl(self, *command: str) -> str:
        """Run `leveret ctl` at the follower. Returns its output. Raises: PeerFailed: it failed."""
        url = f"amqp://guest:guest@127.0.0.1:{self.local.port(FOLLOWER)}/"
        asked = [sys.executable, "-P", "-m", "leveret", "ctl", "--url", url, *command]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, timeout=CTL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise PeerFailed(f"ctl {' '.join(command)} did not end") from None
        if done.returncode:
            raise PeerFailed(f"ctl {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        """The output of `leveret ctl cluster`; {}: there is no answer now."""
        try:
            return dict(json.loads(self.ctl("--json", "cluster")))
        except PeerFailed:
            return {}

    def _await_in_sync(self) -> None:
        def look() -> bool:
            said = self.status()
            self.leader = str(said.get("leader") or "")
            return self.leader not in ("", FOLLOWER) and len(said.get("insync", ())) == len(self.local.names)

        self._await(look, "all nodes are in sync, and the follower does not lead")

    def _await(self, fact: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not fact():
            if time.monotonic() > deadline:
                logs = "".join(f"\n{name}: {end_of(self.local.log(name))}" for name in self.local.names)
                raise PeerFailed(f"not within {START_SECONDS_MAX:g} s: {what}{logs}")
            time.sleep(POLL_SECONDS)


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
                metrics_ports=[local.port(name, "metrics") for name in followed.leader_first()],
                tls_port=local.port(FOLLOWER, "amqps") if has_tls else 0,
            )
        finally:
            local.kill()
