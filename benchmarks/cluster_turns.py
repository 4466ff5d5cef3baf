"""The event loop of a loaded leader while a follower is asked for pages and checks: CPU of a request, long turns.

    python benchmarks/cluster_turns.py [--queues 10000] [--connections 200] [--count 100000] [PATH ...]

Three nodes; messages of 1 KiB go through the leader with a window of 200 while the second follower is asked for one
path again and again. Each step of each task of the leader's loop is timed in CPU of its thread, so other processes of
the machine do not count. "A request" is the CPU of the tasks that answer it: they are of the console and of the link's
listener, by which the follower passes it on. Checks of the follower are answered there, and cost the leader nothing.
Last, a follower is killed and the leader is asked: then the critical check fails, and lists all queues.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generator
from cluster_subjects import Cluster
from console_turns import Steps
from raw_client import RawClient

from leveret.interop.brokers.local_cluster import NAMES, LocalCluster

CRITICAL = "/api/health/checks/node-is-quorum-critical"
PATHS = (
    "/api/nodes",
    "/api/overview",
    CRITICAL,
    "/api/health/checks/alarms",
    "/api/health/checks/ready-to-serve-clients",
    "/api/vhosts",
    "/api/queues?page=1",
)
#: A step above the last one is over the budget of a turn.
BOUNDS_MS = (5, 10, 50)
PAUSE_S = 0.05
#: Parts of the names of tasks that answer requests.
ANSWERING = ("leveret.console.", "trio._highlevel_serve_listeners")
DIRECTORY = "LEVERET_TURNS"


class TimedCluster(LocalCluster):
    """Its nodes time their steps, and write them to a file at SIGUSR2."""

    def _run(self, name: str, command: Sequence[str]) -> Any:
        if name in NAMES:
            os.environ[DIRECTORY] = str(self.directory)
            command = [command[0], "-P", __file__, "--serve", *command[command.index("serve") + 1 :]]
        return super()._run(name, command)

    def turns(self, name: str) -> dict[str, Any]:
        """What a node has timed since the last call."""
        file = self.directory / f"{self.process(name).pid}.turns"
        file.unlink(missing_ok=True)
        self.send(name, signal.SIGUSR2)
        while not file.exists():
            time.sleep(0.01)
        return dict(json.loads(file.read_text()))


def time_node() -> None:
    """Time the steps of this process."""
    import trio

    steps, run = Steps(over=dict.fromkeys(BOUNDS_MS, 0)), trio.run

    def tell(number: int, frame: object) -> None:
        told = {"longest": steps.longest, "whose": steps.whose, "over": steps.over, "by task": steps.by_task}
        file = Path(os.environ[DIRECTORY]) / f"{os.getpid()}.turns"
        file.with_suffix(".new").write_text(json.dumps(told))
        file.with_suffix(".new").replace(file)
        steps.forget()

    def timed(*arguments: Any, **named: Any) -> Any:
        return run(*arguments, instruments=[steps], **named)

    signal.signal(signal.SIGUSR2, tell)
    gc.callbacks.append(steps.collects)
    trio.run = timed  # type: ignore[assignment]


def ask(port: int, path: str) -> tuple[int, int]:
    """Status and length of an answer."""
    login = b64encode(b"guest:guest").decode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
        head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic {login}\r\nconnection: close\r\n\r\n"
        peer.sendall(head.encode())
        answer = b""
        while data := peer.recv(1 << 20):
            answer += data
    return int(answer.split(b" ", 2)[1]), len(answer)


def fill(port: int, count: int) -> None:
    """Declare quorum queues."""
    queues = [
        {"vhost": "/", "name": f"q{n:05}", "durable": True, "arguments": {"x-queue-type": "quorum"}}
        for n in range(count)
    ]
    body, login = json.dumps({"queues": queues}).encode(), b64encode(b"guest:guest").decode()
    with socket.create_connection(("127.0.0.1", port), timeout=120) as peer:
        head = f"POST /api/definitions HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic {login}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        peer.sendall(head.encode() + body)
        answer = peer.recv(65536)
    if b" 204 " not in answer[:20]:
        raise OSError(f"definitions were not imported: {answer[:200]!r}")


def measured(subject: Cluster, nodes: list[str], port: int, path: str, count: int) -> None:
    """Print a line: the leader's steps during one run of the load."""
    asked: list[tuple[int, int]] = []
    is_over = threading.Event()

    def keep_asking() -> None:
        while path and not is_over.wait(PAUSE_S):
            asked.append(ask(port, path))

    if path:
        ask(port, path)  # what it imports
    asking = threading.Thread(target=keep_asking)
    local = subject.local
    assert isinstance(local, TimedCluster)
    local.turns(nodes[0])
    asking.start()
    try:
        raw = subject.run(nodes[0], [subject.pid(nodes[0])], count=count)
    finally:
        is_over.set()
        asking.join()
    found = local.turns(nodes[0])
    spent = sum(took for name, took in found["by task"].items() if name.startswith(ANSWERING))
    status, size = asked[-1] if asked else (0, 0)
    print(
        f"{path or 'nobody asks':46} {status or '':3} {size:9} {len(asked):5} {spent / max(1, len(asked)):9.2f} "
        f"{found['longest']:8.2f} {' '.join(f'{one:5}' for one in found['over'].values())} {raw['msgs_per_s']:8.0f}  "
        f"{found['whose']}",
        flush=True,
    )


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        time_node()
        from leveret.__main__ import main as leveret

        return leveret(["serve", *sys.argv[2:]])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=200, help="idle clients of the follower that is asked")
    parser.add_argument("--count", type=int, default=100_000, help="messages of a run (%(default)s)")
    options = parser.parse_args()
    generator.build()
    with ExitStack() as stack:
        subject = Cluster(stack, TimedCluster)
        nodes = subject.nodes()
        port = subject.console_port(nodes[-1])
        fill(port, options.queues)
        for _ in range(options.connections):
            client = RawClient(subject.port(nodes[-1]))
            stack.callback(client.socket.close)
            client.handshake()
        print(f"{options.queues} queues, {options.connections} connections; ms of CPU of {nodes[0]}, which leads")
        bounds = " ".join(f">{bound:<4}" for bound in BOUNDS_MS)
        print(f"{'':46} {'':3} {'octets':>9} {'asked':>5} {'a request':>9} {'longest':>8} {bounds} {'msgs/s':>8}  task")
        for path in ("", *(options.paths or PATHS)):
            measured(subject, nodes, port, path, options.count)
        os.kill(subject.pid(nodes[1]), signal.SIGKILL)
        print(f"{nodes[1]} is killed")
        measured(subject, nodes, subject.console_port(nodes[0]), CRITICAL, options.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
