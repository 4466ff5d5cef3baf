"""Clusters of three nodes whose leader can be killed, stopped, or prevented."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ..brokers.local_cluster import LocalCluster
from ..brokers.peers import Peer, rabbitmq_cluster
from ..brokers.processes import await_fact, directory_for
from ..tools.http import ask
from ..wire.loopback import answers_amqp

#: Seconds for which no node leads.
NOBODY_SECONDS = 10.0


class Subject(Protocol):
    """A cluster. `name`: of its broker."""

    name: str

    def urls(self) -> list[str]:
        """The URLs of all nodes, a follower's first."""

    def kill_leader(self) -> None:
        """Kill the leader by SIGKILL."""

    def stop_leader(self) -> None:
        """Stop the leader by SIGTERM, and wait for its end."""

    def nobody(self) -> None:
        """Prevent every node from leading for `NOBODY_SECONDS`, and wait for the end of that time."""

    def heal(self) -> None:
        """Start nodes that have ended, and wait until all are in sync."""


def _from_start(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return began


def _from_end(act: Callable[[], None]) -> float:
    act()
    return time.monotonic()


#: A change of the leader -> makes it. Returns the time from which pauses are measured.
CHANGES: dict[str, Callable[[Subject], float]] = {
    "takeover": lambda subject: _from_start(subject.kill_leader),
    "handover": lambda subject: _from_start(subject.stop_leader),
    "nobody leads": lambda subject: _from_end(subject.nobody),
}


@dataclass
class LeveretCluster:
    """Three nodes of Leveret and three members of etcd."""

    local: LocalCluster
    name: str = "leveret"

    def urls(self) -> list[str]:
        leader, *others = self.local.leader_first()
        return [f"amqp://guest:guest@127.0.0.1:{self.local.port(node)}/" for node in (*others, leader)]

    def kill_leader(self) -> None:
        self.local.send(self.local.leader_first()[0], signal.SIGKILL)

    def stop_leader(self) -> None:
        leader = self.local.leader_first()[0]
        self.local.send(leader, signal.SIGTERM)
        self.local.wait_until(lambda: not self.local.is_running(leader), f"{leader} has ended")

    def nobody(self) -> None:
        leader = self.local.leader_first()[0]
        self.local.send_to_members(signal.SIGSTOP)
        self.local.send(leader, signal.SIGKILL)
        time.sleep(NOBODY_SECONDS)
        self.local.send_to_members(signal.SIGCONT)

    def heal(self) -> None:
        self.local.start_ended()


@dataclass
class RabbitMQCluster:
    """Three nodes of RabbitMQ. The leader is the queue's."""

    peers: list[Peer]
    name: str = "rabbitmq"

    def _leader(self) -> Peer:
        for peer in self.peers:
            try:
                queues = json.loads(ask(f"http://127.0.0.1:{peer.console_port}", "GET", "queues"))
            except OSError:
                continue
            if queues and "leader" in queues[0]:
                number = int(queues[0]["leader"].partition("@")[0].removeprefix("peer"))
                return next(one for one in self.peers if one.port == number)
        return self.peers[0]

    def urls(self) -> list[str]:
        leader = self._leader()
        return [peer.url for peer in (*(one for one in self.peers if one is not leader), leader)]

    def _send(self, peer: Peer, number: signal.Signals) -> None:
        assert peer.processes is not None
        peer.processes.process.send_signal(number)

    def kill_leader(self) -> None:
        self._send(self._leader(), signal.SIGKILL)

    def stop_leader(self) -> None:
        leader = self._leader()
        self._send(leader, signal.SIGTERM)
        assert leader.processes is not None
        await_fact(leader.processes.has_ended, f"{leader.port} has ended")

    def nobody(self) -> None:
        leader = self._leader()
        lost = [leader, next(peer for peer in self.peers if peer is not leader)]
        for peer in lost:
            self._send(peer, signal.SIGSTOP)  # to start them again would take longer than all that is measured
        time.sleep(NOBODY_SECONDS)
        for peer in lost:
            self._send(peer, signal.SIGCONT)

    def heal(self) -> None:
        for peer in self.peers:
            if peer.processes is not None and peer.processes.has_ended():
                peer.processes.start_again()
        for peer in self.peers:
            await_fact(partial(answers_amqp, peer.port), f"{peer.port} accepts clients")


@contextmanager
def leveret_cluster() -> Iterator[LeveretCluster]:
    """A fresh cluster of Leveret with all nodes in sync. Raises: FileNotFoundError, PeerFailed."""
    with directory_for("takeovers") as directory:
        subject = LeveretCluster(LocalCluster(directory))
        try:
            subject.local.start()
            subject.local.await_clients()
            subject.heal()
            yield subject
        finally:
            subject.local.kill()


@contextmanager
def three_rabbitmqs() -> Iterator[RabbitMQCluster]:
    """A fresh cluster of RabbitMQ. Raises: FileNotFoundError, PeerFailed."""
    with rabbitmq_cluster(has_consoles=True) as peers:
        yield RabbitMQCluster(peers)
