"""Apache Qpid Broker-J as a context manager: its distribution from Maven Central, with a generated configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..wire.loopback import LOOPBACK, answers_amqp, free_ports
from .maven import unpacked
from .peers import Peer, restartable
from .processes import directory_for

VERSION = "9.2.0"
ARTIFACT = f"org.apache.qpid:apache-qpid-broker-j:{VERSION}:tar.gz:bin"
ARCHIVE = f"apache-qpid-broker-j-{VERSION}-bin.tar.gz"
JAVA_MIN = 11
MEMORY = ("-Xms64m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")


@contextmanager
def qpid(work: Path, certificate: Path, key: Path) -> Iterator[tuple[Peer, int]]:
    """Run a fresh broker, which can be restarted. Yields it and its port with TLS.

    Raises: NotFetched: it could not be fetched. PeerFailed: it did not start.
    """
    home = unpacked(ARTIFACT, ARCHIVE, f"qpid-broker/{VERSION}", work, JAVA_MIN)
    with directory_for("qpid") as directory:
        port, tls_port = free_ports(2)
        store = {"certificateUrl": str(certificate), "privateKeyUrl": str(key)}
        config = directory / "initial.json"
        config.write_text(json.dumps(_configuration(port, tls_port, store), indent=1))
        command = ["java", *MEMORY, "-cp", f"{home}/lib/*", f"-DQPID_HOME={home}", f"-DQPID_WORK={directory / 'work'}"]
        command += ["org.apache.qpid.server.Main", "-icp", str(config)]
        with restartable("qpid", port, command, directory, ready=lambda: _lets_in(port)) as peer:
            yield peer, tls_port


def _lets_in(port: int) -> bool:
    """Whether guest can connect. Qpid listens long before its virtual host exists."""
    import pika
    import pika.exceptions

    if not answers_amqp(port):
        return False
    try:
        pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{LOOPBACK}:{port}/")).close()
    except pika.exceptions.AMQPConnectionError:
        return False
    return True


def _configuration(port: int, tls_port: int, store: dict[str, str]) -> dict[str, Any]:
    """The configuration: the user guest, a port for AMQP 0-9-1 only, one durable virtual host."""
    listening = {
        "bindingAddress": LOOPBACK,
        "authenticationProvider": "plain",
        "protocols": ["AMQP_0_9_1"],
        "virtualhostaliases": [{"name": "defaultAlias", "type": "defaultAlias"}],
    }
    ports: list[dict[str, Any]] = [
        {"name": "amqp", "port": port, **listening},
        {"name": "amqps", "port": tls_port, "transports": ["SSL"], "keyStore": "keys", **listening},
    ]
    guest = {"name": "guest", "type": "managed", "password": "guest"}
    return {
        "name": "qpid",
        "modelVersion": "8.0",
        # Qpid offers PLAIN without TLS only if this is set.
        "authenticationproviders": [
            {"name": "plain", "type": "Plain", "secureOnlyMechanisms": [], "users": [guest]},
        ],
        "keystores": [{"name": "keys", "type": "NonJavaKeyStore", **store}],
        "ports": ports,
        "virtualhostnodes": [
            {
                "name": "default",
                "type": "JSON",
                "defaultVirtualHostNode": "true",
                "virtualHostInitialConfiguration": json.dumps({"type": "BDB"}),
            }
        ],
    }
