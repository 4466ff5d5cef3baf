"""Long jobs that one client asks a broker for, by raw octets. Each prepares its part and returns what begins the job.

What is returned comes back when the job is done, as far as a client can see.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokers import LOOPBACK
from pamqp import commands, frame, header
from raw_client import RawClient

from leveret.cli.control_client import request

C = commands
JOB_SECONDS_MAX = 300.0
#: Octets that are written at once where a job is filled.
CHUNK = 4 * 1024 * 1024
BODY = b"x" * 16
#: A job is watched for so long at most; a million dead letters take longer.
WATCHED_SECONDS_MAX = 15.0
RELOADED = """
[broker]
configuration-file-refresh-period = -1

[[address-setting]]
match = "#"
max-delivery-attempts = {}
"""


@dataclass(slots=True, frozen=True)
class Stage:
    """Where a job runs. `scale`: 1 for the full size. `config`: the broker's configuration file."""

    port: int
    config: Path
    scale: float = 1.0
    is_durable: bool = False
    clients: list[RawClient] = field(default_factory=list)

    def size(self, full: int) -> int:
        """How many, at this scale."""
        return max(1, int(full * self.scale))

    def client(self) -> RawClient:
        """A connection with channel 1."""
        client = RawClient(self.port, deadline_seconds=JOB_SECONDS_MAX)
        client.handshake()
        self.clients.append(client)
        return client

    def close(self) -> None:
        """Its connections end."""
        for client in self.clients:
            client.finish()

    def publish(self, key: str, *, exchange: str = "", expiration: str | None = None) -> bytes:
        """A publish with its content; persistent where there is a journal."""
        properties = C.Basic.Properties(delivery_mode=2 if self.is_durable else 1, expiration=expiration)
        head = frame.marshal(C.Basic.Publish(exchange=exchange, routing_key=key), 1)
        head += frame.marshal(header.ContentHeader(body_size=len(BODY), properties=properties), 1)
        return head + b"\x03\0\1" + len(BODY).to_bytes(4) + BODY + b"\xce"

    def declare(self, name: str, arguments: dict[str, Any] | None = None) -> bytes:
        """queue.declare without an answer."""
        return frame.marshal(C.Queue.Declare(queue=name, durable=True, arguments=arguments or {}, nowait=True), 1)

    def control(self, command: str, arguments: dict[str, Any]) -> Any:
        """A command of the control table."""
        url = f"amqp://guest:guest@{LOOPBACK}:{self.port}/"
        return request(url, command, arguments, timeout_s=JOB_SECONDS_MAX)

    def configure(self, attempts: int) -> None:
        """Write the configuration file."""
        self.config.write_text(RELOADED.format(attempts))


Job = Callable[[Stage], Callable[[], None]]


def sync(client: RawClient) -> None:
    """Wait until the broker has handled all that was sent."""
    client.send(C.Basic.Qos(prefetch_count=0))
    client.wait_for(C.Basic.QosOk)


def ready_count(client: RawClient, queue: str) -> int:
    """Messages that wait in a queue."""
    client.send(C.Queue.Declare(queue=queue, passive=True))
    return int(client.expect(C.Queue.DeclareOk).message_count)


def wait_until_ready(client: RawClient, queue: str, count: int) -> None:
    """Until so many messages wait there, or it has been watched for long enough."""
    until = time.monotonic() + WATCHED_SECONDS_MAX
    while ready_count(client, queue) != count and time.monotonic() < until:
        time.sleep(0.02)


def fill(client: RawClient, message: bytes, count: int) -> None:
    """Publish it so often."""
    chunk = message * (CHUNK // len(message))
    while count > 0:
        part = min(count, CHUNK // len(message))
        client.write(chunk[: part * len(message)])
        count -= part
    sync(client)


def fanout_burst(stage: Stage) -> Callable[[], None]:
    """1,000 messages in one write to a fanout of 2,000 queues."""
    client = stage.client()
    client.send(C.Exchange.Declare(exchange="burst", exchange_type="fanout", durable=True))
    client.expect(C.Exchange.DeclareOk)
    for number in range(stage.size(2_000)):
        bind = C.Queue.Bind(queue=f"burst{number}", exchange="burst", nowait=True)
        client.write(stage.declare(f"burst{number}") + frame.marshal(bind, 1))
    sync(client)
    octets = stage.publish("", exchange="burst") * stage.size(1_000)

    def run() -> None:
        client.write(octets)
        sync(client)
        wait_until_ready(client, "burst0", stage.size(1_000))

    return run


def commit(stage: Stage) -> Callable[[], None]:
    """tx.commit of 200,000 messages."""
    client = stage.client()
    client.write(stage.declare("commit"))
    client.send(C.Tx.Select())
    client.expect(C.Tx.SelectOk)
    fill(client, stage.publish("commit"), stage.size(200_000))

    def run() -> None:
        client.send(C.Tx.Commit())
        client.expect(C.Tx.CommitOk)

    return run


def _filled(stage: Stage, queue: str, arguments: dict[str, Any] | None = None) -> RawClient:
    client = stage.client()
    client.write(stage.declare(queue, arguments))
    fill(client, stage.publish(queue), stage.size(1_000_000))
    wait_until_ready(client, queue, stage.size(1_000_000))
    return client


def purge(stage: Stage) -> Callable[[], None]:
    """queue.purge of 1,000,000 messages."""
    client = _filled(stage, "purge")

    def run() -> None:
        client.send(C.Queue.Purge(queue="purge"))
        client.expect(C.Queue.PurgeOk)

    return run


def delete(stage: Stage) -> Callable[[], None]:
    """queue.delete of 1,000,000 messages."""
    client = _filled(stage, "delete")

    def run() -> None:
        client.send(C.Queue.Delete(queue="delete"))
        client.expect(C.Queue.DeleteOk)

    return run


def _expiring(stage: Stage, queue: str, arguments: dict[str, Any]) -> RawClient:
    """Behind a message that does not expire stand those whose time is over."""
    client = stage.client()
    client.write(stage.declare(queue, arguments) + stage.publish(queue))
    fill(client, stage.publish(queue, expiration="1"), stage.size(1_000_000))
    wait_until_ready(client, queue, stage.size(1_000_000) + 1)
    return client


def _take_head(client: RawClient, queue: str) -> None:
    client.send(C.Basic.Get(queue=queue, no_ack=True))
    client.expect(C.Basic.GetOk)


def expiry(stage: Stage) -> Callable[[], None]:
    """1,000,000 messages expire when the one before them is taken."""
    client = _expiring(stage, "expiry", {})

    def run() -> None:
        _take_head(client, "expiry")
        wait_until_ready(client, "expiry", 0)

    return run


def expiry_to_dead_letters(stage: Stage) -> Callable[[], None]:
    """The same, with a dead-letter exchange: each is published to another queue."""
    client = _expiring(stage, "dying", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    client.write(stage.declare("dead"))

    def run() -> None:
        _take_head(client, "dying")
        wait_until_ready(client, "dead", stage.size(1_000_000))

    return run


def reload(stage: Stage) -> Callable[[], None]:
    """The settings of 50,000 queues are reloaded with a change for all of them."""
    client = stage.client()
    for number in range(stage.size(50_000)):
        client.write(stage.declare(f"reload{number}"))
    sync(client)
    stage.configure(7)

    def run() -> None:
        stage.control("reload", {})

    return run


def lost_connection(stage: Stage) -> Callable[[], None]:
    """A connection is lost with 100,000 unacknowledged messages."""
    client = stage.client()
    count = stage.size(100_000)
    client.write(stage.declare("lost"))
    fill(client, stage.publish("lost"), count)
    lost = stage.client()
    lost.send(C.Basic.Consume(queue="lost", consumer_tag="lost"))
    lost.expect(C.Basic.ConsumeOk)
    lost.socket.setblocking(False)
    while ready_count(client, "lost"):
        _drain(lost.socket)
    _drain(lost.socket)

    def run() -> None:
        lost.reset()
        wait_until_ready(client, "lost", count)

    return run


def _drain(sock: socket.socket) -> None:
    try:
        while sock.recv(CHUNK):
            pass
    except BlockingIOError:
        time.sleep(0.005)


def topic_bindings(stage: Stage) -> Callable[[], None]:
    """20,000 topic bindings, half of them with wildcards, and the deletion of the queue that has them."""
    client = stage.client()
    client.write(stage.declare("topics"))
    sync(client)
    octets = b"".join(
        frame.marshal(C.Queue.Bind(queue="topics", exchange="amq.topic", routing_key=key, nowait=True), 1)
        for number in range(stage.size(10_000))
        for key in (f"plain.{number}", f"*.{number}.#")
    )

    def run() -> None:
        client.write(octets)
        sync(client)
        client.send(C.Queue.Delete(queue="topics"))
        client.expect(C.Queue.DeleteOk)

    return run


def definitions(stage: Stage) -> Callable[[], None]:
    """Definitions with 10,000 queues and 10,000 bindings are imported."""
    names = [f"imported{number}" for number in range(stage.size(10_000))]
    document = {
        "queues": [{"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
                   for name in names],
        "bindings": [{"source": "amq.topic", "vhost": "/", "destination": name, "destination_type": "queue",
                      "routing_key": f"{name}.*", "arguments": {}} for name in names],
    }  # fmt: skip

    def run() -> None:
        stage.control("definitions", {"action": "import", "definitions": document})

    return run


JOBS: dict[str, Job] = {
    job.__name__: job
    for job in (
        fanout_burst,
        commit,
        purge,
        delete,
        expiry,
        expiry_to_dead_letters,
        reload,
        lost_connection,
        topic_bindings,
        definitions,
    )
}
