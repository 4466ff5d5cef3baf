"""What the console costs a broker that has much: CPU for the first page of queues, the overview, the metrics.

    python benchmarks/console_size.py [--queues 10000] [--bindings 50000] [--connections 2000] [--out FILE]

RabbitMQ and Leveret, one after the other, with the same objects, imported as definitions; each connection has a
channel. CPU of the broker's process in all its threads, less what it takes without requests in that time: medians of
20. Wall time is told as well, and says more about who else is on the machine.
"""

import argparse
import http.client
import json
import os
import resource
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from brokers import machine
from pamqp import commands, frame

from leveret.interop.brokers.peers import find_rabbitmq
from leveret.interop.tools.brokers import HttpBroker, http_broker
from leveret.interop.wire.loopback import LOOPBACK

ROUNDS, IDLE_SECONDS, MS = 20, 10.0, 1000
EXCHANGES = 50
CPUCLOCK_SCHED = 2
LOGIN = "Basic Z3Vlc3Q6Z3Vlc3Q="
#: What the page of either broker asks, and what agents do.
REQUESTS = {
    "overview": "/api/overview",
    "first page of queues": "/api/queues?page=1&page_size=100&name=&use_regex=false&pagination=true",
    "the same, by messages": "/api/queues?page=1&page_size=100&sort=messages&sort_reverse=true&pagination=true",
    "all queues, name and messages": "/api/queues?columns=name,messages",
    "first page of connections": "/api/connections?page=1&page_size=100&pagination=true",
    "/metrics": "/metrics",
}


def definitions(queues: int, bindings: int) -> dict[str, Any]:
    """Queues, and bindings that share out evenly among topic exchanges."""
    plain = {"vhost": "/", "durable": False, "auto_delete": False, "arguments": {}}
    return {
        "exchanges": [{**plain, "name": f"x{one}", "type": "topic", "internal": False} for one in range(EXCHANGES)],
        "queues": [{**plain, "name": f"queue-{one:05}"} for one in range(queues)],
        "bindings": [
            {
                "vhost": "/",
                "source": f"x{one % EXCHANGES}",
                "destination": f"queue-{one % queues:05}",
                "destination_type": "queue",
                "routing_key": f"key.{one}",
                "arguments": {},
            }
            for one in range(bindings)
        ],
    }


def ask(at: HttpBroker, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of an answer."""
    is_metrics = path.startswith("/metrics")
    connection = http.client.HTTPConnection(LOOPBACK, at.metrics if is_metrics else at.management, timeout=900)
    headers = {"authorization": LOGIN, "content-type": "application/json"}
    connection.request(method, path, body, {} if is_metrics else headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def connected(port: int) -> socket.socket:
    """A connection with a channel, and no heartbeats: nobody has to look after it."""
    start = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
    methods = [(start, 0), (commands.Connection.TuneOk(2047, 131072, 0), 0), (commands.Connection.Open("/"), 0)]
    methods.append((commands.Channel.Open(), 1))
    client = socket.create_connection((LOOPBACK, port), timeout=120)
    client.sendall(b"AMQP\0\0\x09\x01" + b"".join(frame.marshal(method, channel) for method, channel in methods))
    data, opened = b"", commands.Channel.OpenOk.index.to_bytes(4, "big")
    while opened not in data:
        part = client.recv(65536)
        if not part:
            raise ConnectionError(f"the broker closed a connection: {data[-200:]!r}")
        data += part
    return client


@contextmanager
def connections(at: HttpBroker, count: int) -> Iterator[None]:
    """So many are open."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(connected(at.peer.port))
        yield


def cpu_ns(pid: int) -> int:
    """Time of a process on a CPU, all its threads that are and were; clock_getcpuclockid(3), which Python lacks."""
    return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)


def measured(at: HttpBroker, queues: int, count: int) -> dict[str, Any]:
    """Milliseconds of CPU and of wall time for each request, and how much CPU a second takes without requests."""
    while json.loads(ask(at, "GET", "/api/overview")[1])["object_totals"].get("queues") != queues:
        time.sleep(0.5)
    while json.loads(ask(at, "GET", "/api/overview")[1])["object_totals"].get("channels") != count:
        time.sleep(0.5)
    pid, began = at.peer.pid, time.monotonic()
    before = cpu_ns(pid)
    time.sleep(IDLE_SECONDS)
    idle = (cpu_ns(pid) - before) / (time.monotonic() - began)  # nanoseconds a second
    found: dict[str, Any] = {"idle_ms_a_second": round(idle / 1e6, 1)}
    for name, path in REQUESTS.items():
        cpu, wall, size = [], [], 0
        for _ in range(ROUNDS):
            before, began = cpu_ns(pid), time.monotonic()
            status, body = ask(at, "GET", path)
            seconds = time.monotonic() - began
            if status != http.HTTPStatus.OK:
                raise RuntimeError(f"{at.name}: {path}: {status}")
            cpu.append((cpu_ns(pid) - before - idle * seconds) / 1e6)
            wall.append(seconds * MS)
            size = len(body)
        found[name] = {
            "cpu_ms": round(statistics.median(cpu), 1),
            "wall_ms": round(statistics.median(wall), 1),
            "octets": size,
        }
        print(f"{at.name:10}{name:32}{found[name]}", flush=True)
    return found


def main() -> None:
    """Print a table; `--out` keeps the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--bindings", type=int, default=50_000)
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * options.connections + 1000)), hard))
    document = json.dumps(definitions(options.queues, options.bindings)).encode()
    figures: dict[str, Any] = {}
    for broker in ("rabbitmq", "leveret") if find_rabbitmq() else ("leveret",):
        with http_broker(broker, as_installed=True) as at:
            before = cpu_ns(at.peer.pid)
            status, answer = ask(at, "POST", "/api/definitions", document)
            if status != http.HTTPStatus.NO_CONTENT:
                raise RuntimeError(f"{broker}: import: {status} {answer[:300]!r}")
            imported = (cpu_ns(at.peer.pid) - before) / 1e6
            with connections(at, options.connections):
                figures[broker] = {
                    "import_cpu_ms": round(imported),
                    **measured(at, options.queues, options.connections),
                }
    sizes = {"queues": options.queues, "bindings": options.bindings, "connections": options.connections}
    result = {"machine": machine(), "load": os.getloadavg(), **sizes, "figures": figures}
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
