"""A fresh RabbitMQ with its management plug-in or a fresh leveret with its console, and where each is reached."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..brokers.follower import FOLLOWER, leveret_follower
from ..brokers.peers import Peer, leveret, rabbitmq
from ..brokers.processes import POLL_SECONDS, START_SECONDS_MAX, PeerFailed
from ..wire.loopback import LOOPBACK, free_ports, listens
from .asking import ask

NODE = "rabbit@localhost"
#: What RabbitMQ's own set-up for rabbit-hole switches on, and the metrics.
PLUGINS = (
    "rabbitmq_management",
    "rabbitmq_prometheus",
    "rabbitmq_shovel_management",
    "rabbitmq_federation_management",
)
#: A sample a second, as the suites of clients configure it; the samples of a second are kept as long as Leveret's.
RABBITMQ = """\
management.tcp.ip = {host}
management.tcp.port = {management}
prometheus.tcp.ip = {host}
prometheus.tcp.port = {metrics}
"""
OFTEN = "collect_statistics_interval = 1000\n"
RETENTION = "[{605, 1}]"
ADVANCED = f"""\
[{{rabbitmq_management, [{{sample_retention_policies,
    [{{global, {RETENTION}}}, {{basic, {RETENTION}}}, {{detailed, [{{10, 1}}]}}]}}]}},
 {{rabbitmq_management_agent, [{{sample_retention_policies,
    [{{global, {RETENTION}}}, {{basic, {RETENTION}}}, {{detailed, [{{10, 1}}]}}]}}]}}].
"""
LEVERET = """\
[management]
listen = ["{host}:{management}"]
metrics = "{host}:{metrics}"
node = "{node}"
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A broker as tools see it: ports of AMQP, of the HTTP API, and of the metrics; all on loopback."""

    peer: Peer
    management: int
    metrics: int
    node: str = NODE

    @property
    def name(self) -> str:
        return self.peer.name

    @property
    def url(self) -> str:
        """Of the HTTP API, without a path."""
        return f"http://{LOOPBACK}:{self.management}"


@contextmanager
def place(broker: str, *, as_installed: bool = False) -> Iterator[Place]:
    """A fresh `rabbitmq` or `leveret`; it answers AMQP and HTTP when the body runs. `as_installed`: RabbitMQ takes its
    samples as it does by default.

    Raises: FileNotFoundError: there is no RabbitMQ on this machine. PeerFailed: it did not come up.
    """
    management, metrics = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="leveret-tools-") as directory:
        if broker == "rabbitmq":
            config = RABBITMQ.format(host=LOOPBACK, management=management, metrics=metrics)
            samples = ("", "") if as_installed else (OFTEN, ADVANCED)
            starting = rabbitmq(config=config + samples[0], advanced=samples[1], plugins=PLUGINS, node=NODE)
        else:
            file = Path(directory) / "leveret.toml"
            file.write_text(LEVERET.format(host=LOOPBACK, management=management, metrics=metrics, node=NODE))
            starting = leveret("--config", str(file), "--management", f"{LOOPBACK}:{management}")
        with starting as peer:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not (listens(management) and listens(metrics)):
                if time.monotonic() > deadline:
                    raise PeerFailed(f"{broker}: no HTTP on {management} and {metrics}; {peer.last_words()}")
                time.sleep(POLL_SECONDS)
            found = Place(peer, management, metrics)
            ask(found.url, "PUT", "cluster-name", {"name": "rabbitmq@localhost"})
            yield found


@contextmanager
def follower_place() -> Iterator[Place]:
    """A fresh cluster of Leveret, whose follower answers. The metrics are the leader's: each node has its own.

    Raises: FileNotFoundError: no etcd on this machine. PeerFailed: it did not come up.
    """
    with leveret_follower() as peer:
        found = Place(peer, peer.console_port, peer.metrics_ports[0], f"rabbit@{FOLLOWER}")
        ask(found.url, "PUT", "cluster-name", {"name": "rabbitmq@localhost"})
        yield found
