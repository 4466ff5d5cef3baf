"""The requests of `tests/spec/management/probe-log.jsonl`, asked of RabbitMQ 3.10.8, asked of another broker again.

What the log's node had and the log does not say is prepared first: a publisher, a consumer with an exclusive queue, a
queue with messages, two global parameters. Names of connections and ports are those of the broker that is asked.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
from api_client import ApiClient, Response

LOG = Path(__file__).resolve().parents[1] / "spec" / "management" / "probe-log.jsonl"
#: What the log's node was called.
NODE = "hxmgmt@localhost"
#: The name of its publisher's connection, as it is in paths.
THEIR_PUBLISHER = "127.0.0.1%3A51358%20-%3E%20127.0.0.1%3A26672"
#: Headers whose values are compared.
HEADERS = ("allow", "location", "www-authenticate")


@dataclass(slots=True, frozen=True)
class Probe:
    """One line. `number`: of the line."""

    number: int
    tag: str
    method: str
    path: str
    user: str | None
    password: str | None
    body: bytes | None
    headers: dict[str, str]
    status: int
    answer: str
    answered_headers: dict[str, str]

    @property
    def reason(self) -> Any:
        """Of a refusal."""
        return reason_of(self.answer)


def reason_of(text: str) -> Any:
    """The reason in an answer; None: it has none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found.get("reason") if isinstance(found, dict) else None


def probes() -> Iterator[Probe]:
    """All lines."""
    for number, line in enumerate(LOG.read_text().splitlines()):
        row = json.loads(line)
        method, _, path = row["request"].partition(" ")
        body = row["body"]
        raw = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        headers = dict(row.get("sent-headers", {}))
        kind = row.get("ct", "application/json" if body is not None else None)
        if kind is not None:
            headers["content-type"] = kind
        # The log keeps no passwords: among the rows about tags guest's was wrong.
        is_wrong = row["tag"] == "tags" and row["user"] == "guest"
        is_wrong |= row["request"] == "POST /api/login" and row["user"] is not None
        password = "wrong" if is_wrong else row["user"]
        answer = row["status"], row["answer"], row["headers"]
        yield Probe(number, row["tag"], method, path, row["user"], password, raw, headers, *answer)


@dataclass(slots=True, frozen=True)
class Prepared:
    """What the log's node had. `publisher`: the name of its connection, as it is in paths."""

    api: ApiClient
    publisher: str
    consumer: Any

    def before(self, probe: Probe) -> None:
        """What was done between two lines."""
        if probe.number == 25:
            self.consumer.basic_consume("orders", lambda *_: None)
        if probe.number == 631:
            for _ in range(3):
                _publish(self.api, "orders")
        if probe.number == 919:
            assert self.api.ask("PUT", "vhosts/tilde", {}).status == 201
            assert self.api.ask("PUT", "queues/tilde/t", {}).status == 201


@contextmanager
def prepared(url: str, api: ApiClient) -> Iterator[Prepared]:
    """Two connections, and what they made."""
    publisher, consumer = (pika.BlockingConnection(pika.URLParameters(url)) for _ in range(2))
    try:
        publisher.channel()
        channel = consumer.channel()
        channel.basic_qos(prefetch_count=1)
        channel.queue_declare("excl", exclusive=True)
        channel.queue_declare("getq")
        for name, value in (("gp1", {"a": 1}), ("zz", 1)):
            assert api.ask("PUT", f"global-parameters/{name}", {"value": value}).status == 201
        names = sorted((one["connected_at"], one["name"]) for one in api.get("connections"))
        name = names[0][1].replace(":", "%3A").replace(" ", "%20").replace(">", "%3E")
        yield Prepared(api, name, channel)
    finally:
        consumer.close()
        with suppress(pika.exceptions.AMQPConnectionError):  # the last line of the log closes it
            publisher.close()


def _publish(api: ApiClient, queue: str) -> None:
    message = {"properties": {}, "routing_key": queue, "payload": "x", "payload_encoding": "string"}
    assert api.ask("POST", "exchanges/%2F/amq.default/publish", message).json == {"routed": True}


def ask(probe: Probe, api: ApiClient, publisher: str) -> Response:
    """The same request."""
    path = probe.path.replace(THEIR_PUBLISHER, publisher)
    return api.ask(probe.method, path, probe.body, user=probe.user, password=probe.password, headers=probe.headers)


def differences(probe: Probe, answer: Response) -> str:
    """What of status, reason and headers is not equal; empty: nothing."""
    found = []
    if answer.status != probe.status:
        found.append(f"{answer.status} for {probe.status}")
    text = answer.body.decode("utf-8", "replace")
    if probe.status >= 300 and reason_of(text) != probe.reason and probe.method != "HEAD":
        found.append(f"reason {reason_of(text)!r} for {probe.reason!r}")
    for name in HEADERS:
        theirs = probe.answered_headers.get(name)
        ours = answer.headers.get(name)
        if theirs is not None and theirs != ours:
            found.append(f"{name} {ours!r} for {theirs!r}")
    return "; ".join(found)
