"""Fresh brokers with an HTTP API: RabbitMQ with its management plug-in, and leveret with its console."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..brokers.follower import FOLLOWER, leveret_follower
from ..brokers.peers import Peer, leveret, rabbitmq
from ..brokers.processes import await_fact
from ..wire.loopback import LOOPBACK, free_ports, listens
from .http import ask

NODE = "rabbit@localhost"
#: The plug-ins of the usual set-up for rabbit-hole, and the metrics.
PLUGINS = (
    "rabbitmq_management",
    "rabbitmq_prometheus",
    "rabbitmq_shovel_management",
    "rabbitmq_federation_management",
)
#: A sample a second, as in the suites of clients, which are kept as long as Leveret's.
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
class HttpBroker:
    """A broker with ports for AMQP, the HTTP API and metrics, all on loopback."""

    peer: Peer
    management: int
    metrics: int
    node: str = NODE

    @property
    def name(self) -> str:
        return self.peer.name

    @property
    def url(self) -> str:
        """The URL of the HTTP API, without a path."""
        return f"http://{LOOPBACK}:{self.management}"


@contextmanager
def http_broker(broker: str, *, as_installed: bool = False) -> Iterator[HttpBroker]:
    """A fresh `rabbitmq` or `leveret`, which answers AMQP and HTTP. `as_installed`: RabbitMQ samples as by default.

    Raises: FileNotFoundError: RabbitMQ is not on this machine. PeerFailed: the broker did not start.
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
            await_fact(lambda: listens(management) and listens(metrics), f"{broker} serves HTTP", [peer.log])
            found = HttpBroker(peer, management, metrics)
            ask(found.url, "PUT", "cluster-name", {"name": "rabbitmq@localhost"})
            yield found


@contextmanager
def http_follower() -> Iterator[HttpBroker]:
    """A follower of a fresh cluster of Leveret. The metrics are those of the leader.

    Raises: FileNotFoundError: etcd is not on this machine. PeerFailed: the cluster did not start.
    """
    with leveret_follower() as peer:
        found = HttpBroker(peer, peer.console_port, peer.metrics_ports[0], f"rabbit@{FOLLOWER}")
        ask(found.url, "PUT", "cluster-name", {"name": "rabbitmq@localhost"})
        yield found
