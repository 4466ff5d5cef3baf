"""HAProxy, with the configuration of deploy/, before three nodes."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pika
import pytest
from api_client import ApiClient
from cluster_nodes import NAMES, ClusterNodes, cluster_nodes, until
from etcd_servers import ETCD, WHY_NOT
from working_clients import HERE, WorkingClient

from leveret.__main__ import main
from leveret.interop.wire.loopback import free_ports

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
CONFIGURATION = Path(__file__).parents[2] / "deploy/haproxy.cfg"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(ETCD is None, reason=WHY_NOT),
    pytest.mark.skipif(HAPROXY is None, reason="haproxy is not installed"),
]


class Balancer:
    """HAProxy before nodes. `amqp`, `http`: its ports."""

    def __init__(self, nodes: ClusterNodes, directory: Path, options: str) -> None:
        self.amqp, self.http = free_ports(2)
        self.socket = directory / "haproxy.sock"
        text = CONFIGURATION.read_text().replace("maxconn 20000", f"maxconn 100\n    stats socket {self.socket}")
        text = text.replace("bind :5672", f"bind 127.0.0.1:{self.amqp}")
        text = text.replace("bind :15672", f"bind 127.0.0.1:{self.http}")
        for name, host in zip(NAMES, ("10.0.0.1", "10.0.0.2", "10.0.0.3")):
            console = nodes.console(name).rpartition(":")[2]
            server = f"127.0.0.1:{nodes.ports[name]} check port {console}{options}"
            text = text.replace(f"{host}:5672 check port 15672", server)
            text = text.replace(f"{host}:15672", f"127.0.0.1:{console}")
        assert "10.0.0." not in text
        path = directory / "haproxy.cfg"
        path.write_text(text)
        assert HAPROXY is not None
        checked = subprocess.run([HAPROXY, "-c", "-f", str(path)], capture_output=True, text=True)
        assert checked.returncode == 0 and "WARNING" not in checked.stdout + checked.stderr, checked.stderr
        self._process = subprocess.Popen([HAPROXY, "-db", "-f", str(path)], stderr=subprocess.DEVNULL)

    def states(self) -> dict[str, str]:
        """Of the servers for AMQP: UP, DOWN, ..."""
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(self.socket))
                sock.sendall(b"show stat\n")
                text = b"".join(iter(lambda: sock.recv(65536), b"")).decode()
        except OSError:
            return {}
        rows = [line.split(",") for line in text.splitlines() if line.startswith("nodes,")]
        return {row[1]: row[17].partition(" ")[0] for row in rows if row[1] in NAMES}

    def await_states(self, **wanted: str) -> None:
        """Wait until its checks have found that."""
        until(lambda: self.states() == wanted, f"{wanted}")

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("names_clients", [False, True], ids=["plain", "proxy header"])
def test_clients_behind_haproxy(names_clients: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever node is drained or lost: new connections go to those that serve, and nothing confirmed is lost."""
    with cluster_nodes(tmp_path) as nodes, ExitStack() as stack:
        if names_clients:
            nodes.extra = dict.fromkeys(NAMES, '[broker]\nproxy-protocol-from = ["127.0.0.1"]')
        nodes.start_all()
        nodes.await_in_sync()
        balancer = Balancer(nodes, tmp_path, " send-proxy-v2" if names_clients else "")
        stack.callback(balancer.close)
        balancer.await_states(a="UP", b="UP", c="UP")
        url = f"amqp://guest:guest@127.0.0.1:{balancer.amqp}/"
        with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
            connection.channel().queue_declare("orders", durable=True)
        client = WorkingClient("pika", [sys.executable, str(HERE / "pika_client.py")], "orders", [balancer.amqp])
        stack.callback(client.stop)
        await_confirms(client, 20)
        assert main(["ctl", "--url", url, "drain", "c"]) == 0
        balancer.await_states(a="UP", b="UP", c="DOWN")
        await_confirms(client, 20)
        assert main(["ctl", "--url", url, "revive", "c"]) == 0
        balancer.await_states(a="UP", b="UP", c="UP")
        leader = nodes.leader()
        nodes.kill(leader)
        balancer.await_states(**{name: "DOWN" if name == leader else "UP" for name in NAMES})
        await_confirms(client, 20)
        client.stop()
        with closing(pika.BlockingConnection(pika.URLParameters(url))) as connection:
            found = list(read_all(connection.channel(), "orders"))
        assert {number for number, _ in client.confirmed} <= set(found)
        overview = ApiClient(f"http://127.0.0.1:{balancer.http}").get("overview")
        assert overview["cluster_name"] == "t"


def await_confirms(client: WorkingClient, count: int) -> None:
    """Wait until there are so many more."""
    wanted = len(client.confirmed) + count
    until(lambda: len(client.confirmed) >= wanted, "confirms through HAProxy")


def read_all(channel: pika.channel.Channel, queue: str) -> Iterator[int]:
    """Numbers of all messages."""
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        yield int(got[2])
