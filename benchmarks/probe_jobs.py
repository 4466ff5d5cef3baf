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
from pamqp.common import FieldTable
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
proxy-protocol-from = ["127.0.0.2"]

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


def filtered_replays(stage: Stage) -> Callable[[], None]:
    """118 consumers with filters read the 5,000 messages of a leased queue's log from the beginning."""
    client = stage.client()
    client.write(stage.declare("replayed", {"x-queue-type": "amps"}))
    properties = C.Basic.Properties(delivery_mode=2 if stage.is_durable else 1)
    for number in range(stage.size(5_000)):
        body = b'{"n": %d, "text": "%s"}' % (number, b"x" * 40)
        client.write(_publish("replayed", properties, body))
    sync(client)
    readers = [stage.client() for _ in range(stage.size(118))]
    for reader in readers:
        reader.send(C.Basic.Qos(prefetch_count=100))
        reader.expect(C.Basic.QosOk)

    def run() -> None:
        arguments: FieldTable = {"x-bookmark": "0", "x-filter": "/n < 0 OR LENGTH(/text) = 39"}
        for reader in readers:
            reader.send(C.Basic.Consume(queue="replayed", consumer_tag="r", arguments=arguments))
        for reader in readers:
            reader.expect(C.Basic.ConsumeOk)
        _watch(client, 5.0)

    return run


def _publish(key: str, properties: C.Basic.Properties, body: bytes, exchange: str = "") -> bytes:
    head = frame.marshal(C.Basic.Publish(exchange=exchange, routing_key=key), 1)
    head += frame.marshal(header.ContentHeader(body_size=len(body), properties=properties), 1)
    return head + b"\x03\0\1" + len(body).to_bytes(4) + body + b"\xce"


def _watch(client: RawClient, seconds: float) -> None:
    """For so long, others' work goes on."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sync(client)
        time.sleep(0.05)


def _policies(count: int, pattern: str) -> list[dict[str, Any]]:
    return [{"name": f"p{n}", "vhost": "/", "pattern": pattern.format(n), "definition": {"max-length": 1000 + n},
             "apply-to": "queues", "priority": n} for n in range(count)]  # fmt: skip


def _queues(names: list[str]) -> list[dict[str, Any]]:
    return [{"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}} for name in names]


def long_names_beside_policies(stage: Stage) -> Callable[[], None]:
    """Definitions with 60 queues, whose names have 250 octets, and 100 policies are imported."""
    names = [f"long{number}".ljust(250, ".") for number in range(stage.size(60))]
    document = {"policies": _policies(stage.size(100), r"^team{}\..*"), "queues": _queues(names)}
    return lambda: stage.control("definitions", {"action": "import", "definitions": document})


def many_queues_beside_policies(stage: Stage) -> Callable[[], None]:
    """Definitions with 3,000 queues and 401 policies, half of which look for something inside, are imported."""
    half = stage.size(200)
    policies = _policies(half + 1, r"^team{}\..*")
    policies += [{**one, "name": f"m{at}"} for at, one in enumerate(_policies(half, "^.*orders{}.*$"))]
    names = [f"shop.queue.{number}" for number in range(stage.size(3_000))]
    document = {"policies": policies, "queues": _queues(names)}
    return lambda: stage.control("definitions", {"action": "import", "definitions": document})


def channels(stage: Stage) -> Callable[[], None]:
    """Four connections open and close 2,000 channels each, three times, without waiting."""
    clients = [stage.client() for _ in range(4)]
    numbers = range(2, stage.size(2_000) + 2)
    opens = b"".join(frame.marshal(C.Channel.Open(), number) for number in numbers)
    closes = b"".join(
        frame.marshal(C.Channel.Close(reply_code=200, class_id=0, method_id=0), number) for number in numbers
    )

    def run() -> None:
        for _ in range(3):
            for client in clients:
                client.write(opens)
            for client in clients:
                sync(client)
            for client in clients:
                client.write(closes)
            for client in clients:
                sync(client)

    return run


def nested_headers(stage: Stage) -> Callable[[], None]:
    """4,000 messages with headers of 60 levels and 1,000 entries through a headers exchange."""
    client = stage.client()
    client.write(stage.declare("nested"))
    client.send(C.Queue.Bind(queue="nested", exchange="amq.headers", arguments={"x-match": "all", "a": 1}))
    client.expect(C.Queue.BindOk)
    deep: Any = {"b": 1}
    for _ in range(60):
        deep = {"n": deep}
    messages = [
        _publish("", C.Basic.Properties(headers={"a": 1, "deep": deep, "id": number,
                                                 "list": [{"k": at} for at in range(1000)]}), BODY, "amq.headers")
        for number in range(stage.size(200))
    ]  # fmt: skip
    octets = b"".join(messages)

    def run() -> None:
        for _ in range(20):
            client.write(octets)
        sync(client)

    return run


def expensive_filters(stage: Stage) -> Callable[[], None]:
    """100 consumers with filters that search long texts, and 5,000 messages that none of them takes."""
    client = stage.client()
    client.write(stage.declare("filtered"))
    for number in range(stage.size(100)):
        text = f"/text LIKE 'x*y.*{number}' OR /text LIKE '(x|y)+z{number}' OR LENGTH(CONCAT(/text, /text)) < 0"
        consume = C.Basic.Consume(queue="filtered", consumer_tag=f"f{number}", arguments={"x-filter": text})
        client.send(consume)
        client.expect(C.Basic.ConsumeOk)
    body = b'{"text": "%s"}' % (b"x" * 2_000)
    octets = _publish("filtered", C.Basic.Properties(delivery_mode=1), body) * stage.size(5_000)

    def run() -> None:
        client.write(octets)
        sync(client)
        _watch(client, 5.0)

    return run


def names_of_255(stage: Stage) -> Callable[[], None]:
    """3,000 queues, exchanges and bindings with names and keys of 255 octets, declared and deleted without waiting."""
    client = stage.client()
    parts = []
    for number in range(stage.size(3_000)):
        name = f"{number}.".ljust(255, "n")
        parts.append(stage.declare(name))
        parts.append(frame.marshal(C.Exchange.Declare(exchange=name[:127], exchange_type="topic", nowait=True), 1))
        key = ".".join(["w"] * 120) + f".{number}"
        parts.append(frame.marshal(C.Queue.Bind(queue=name, exchange=name[:127], routing_key=key, nowait=True), 1))
        parts.append(frame.marshal(C.Queue.Bind(queue=name, exchange="amq.topic", routing_key=f"#.{key}"[:255],
                                                nowait=True), 1))  # fmt: skip
        parts.append(stage.publish(key, exchange="amq.topic"))
    for number in range(stage.size(3_000)):
        name = f"{number}.".ljust(255, "n")
        parts.append(frame.marshal(C.Queue.Delete(queue=name, nowait=True), 1))
        parts.append(frame.marshal(C.Exchange.Delete(exchange=name[:127], nowait=True), 1))
    octets = b"".join(parts)

    def run() -> None:
        client.write(octets)
        sync(client)

    return run


def many_connections(stage: Stage) -> Callable[[], None]:
    """30 times, 100 clients connect at once, log in and go."""
    return lambda: _come_and_go(stage, LOOPBACK, b"")


def proxied_connections(stage: Stage) -> Callable[[], None]:
    """The same behind a proxy, which says who they are."""
    return lambda: _come_and_go(stage, "127.0.0.2", b"PROXY TCP4 127.0.0.1 127.0.0.1 1024 5672\r\n")


def _come_and_go(stage: Stage, source: str, first: bytes) -> None:
    octets = first + b"AMQP\0\0\x09\x01"
    octets += frame.marshal(C.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"), 0)
    octets += frame.marshal(C.Connection.TuneOk(2047, 131072, 0), 0) + frame.marshal(C.Connection.Open("/"), 0)
    opened = frame.marshal(C.Connection.OpenOk(), 0)
    for _ in range(stage.size(30)):
        socks = [socket.create_connection((LOOPBACK, stage.port), 60, (source, 0)) for _ in range(100)]
        for sock in socks:
            sock.sendall(octets)
        for sock in socks:
            answer = b""
            while opened not in answer:
                more = sock.recv(CHUNK)
                assert more, f"refused: {answer!r}"
                answer += more
            sock.close()


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
        filtered_replays,
        long_names_beside_policies,
        many_queues_beside_policies,
        channels,
        nested_headers,
        expensive_filters,
        names_of_255,
        many_connections,
        proxied_connections,
    )
}
