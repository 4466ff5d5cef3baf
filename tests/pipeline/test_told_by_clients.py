"""A story told by pika and aio-pika to a broker that restarts and is killed; they remember what they did.

Every number of every job is held against what the clients know, on both engines: virtual hosts and queues with hostile
names, rings, times to live, delays, dead letters, transient messages, what a killed broker gives back.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote

import aio_pika
import pika
import pytest
from broker_process import BrokerProcess, leveret_serve
from told_events import answered

pytest.importorskip("duckdb", reason="the pipeline's libraries are not installed (make spark)")
from leveret.pipeline.jobs.audit import audit, fates
from leveret.pipeline.jobs.backlog import blocked, depth
from leveret.pipeline.jobs.failures import deadletters, loss, redelivery
from leveret.pipeline.jobs.opening import open_tables
from leveret.pipeline.jobs.tables import Tables
from leveret.pipeline.jobs.timing import fairness, latency
from leveret.pipeline.jobs.trace import trace
from leveret.pipeline.lake.ingest import IngestOptions, ingest
from leveret.pipeline.progress import Progress

SHOP, ODD = "shop", "läger <b>\"&'"
WORK, DEAD, RING, SHORT, LOST, RETRY, FAILED, PASSING = (
    "work", "dead", "ring", "short", "lost", "retry", "failed", "passing",
)  # fmt: skip
HOSTILE = "</script>'; DROP TABLE events --\\"
TAG = "c\"o'n;s</b>"
CONFIG = f"""
[journal]
scope = "all"
[[vhost]]
name = "{SHOP}"
[[vhost]]
name = {json.dumps(ODD, ensure_ascii=False)}
[[user]]
name = "teller"
password = "t"
""" + "".join(
    f"[[user.permission]]\nvhost = {json.dumps(vhost, ensure_ascii=False)}\n"
    + "".join(f'{what} = ".*"\n' for what in ("configure", "write", "read"))
    for vhost in ("/", SHOP, ODD)
)
Key = tuple[str, str]
LOSES = ("expired", "killed")


class Memory:
    """What the clients know, by (virtual host, queue)."""

    def __init__(self) -> None:
        self.fates: Counter[tuple[str, str, str]] = Counter()
        self.octets: Counter[tuple[str, str, str]] = Counter()  # of what was lost, by its cause
        self.delivered: Counter[tuple[str, str, str]] = Counter()  # with the consumer
        self.acked: Counter[tuple[str, str, str]] = Counter()
        self.seen: dict[Key, set[str]] = {}  # messages that were delivered at least once
        self.again: dict[tuple[str, str, str], int] = {}  # deliveries of those that were delivered again, or died

    def gone(self, vhost: str, queue: str, fate: str, octets: int = 0) -> None:
        """A message is no longer open."""
        self.fates[vhost, queue, fate] += 1
        self.fates[vhost, queue, "open"] -= 1
        self.octets[vhost, queue, fate] += octets

    def came(self, vhost: str, queue: str) -> None:
        """A message is in a queue."""
        self.fates[vhost, queue, "open"] += 1

    def got(self, vhost: str, queue: str, tag: str, id_: str) -> None:
        """A delivery."""
        self.delivered[vhost, queue, tag] += 1
        self.seen.setdefault((vhost, queue), set()).add(id_)
        self.again[vhost, queue, id_] = self.again.get((vhost, queue, id_), 0) + 1


class Teller:
    """One connection of pika, with confirms."""

    def __init__(self, broker: BrokerProcess, memory: Memory, vhost: str) -> None:
        self.memory, self.vhost = memory, vhost
        where = f"amqp://teller:t@127.0.0.1:{broker.port}/{quote(vhost, safe='')}"
        self.connection = pika.BlockingConnection(pika.URLParameters(where))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def declare(self, queue: str, **arguments: object) -> None:
        """A durable queue."""
        table = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.channel.queue_declare(queue, durable=True, arguments=table)

    def publish(self, queue: str, id_: str, body: bytes, *, mode: int = 2) -> None:
        """Confirmed when it returns."""
        properties = pika.BasicProperties(message_id=id_, delivery_mode=mode)
        self.channel.basic_publish("", queue, body, properties)
        self.memory.came(self.vhost, queue)

    def take(self, queue: str, tag: str, decide: list[str]) -> None:
        """As many deliveries as there are decisions, each of which is one of ack, again, reject, hold."""
        pending = iter(decide)
        self.channel.basic_qos(prefetch_count=1 if "hold" not in decide else len(decide))

        def deliver(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self.memory.got(self.vhost, queue, tag, properties.message_id)
            decision = next(pending)
            counted[0] -= 1
            if not counted[0]:
                channel.basic_cancel(tag)  # before the room is free for a delivery that nobody would see
            if decision == "ack":
                channel.basic_ack(method.delivery_tag)
                self.memory.acked[self.vhost, queue, tag] += 1
                self.memory.gone(self.vhost, queue, "acked")
            elif decision == "again":
                channel.basic_nack(method.delivery_tag, requeue=True)
            elif decision == "reject":
                channel.basic_reject(method.delivery_tag, requeue=False)

        counted = [len(decide)]
        self.channel.basic_consume(queue, deliver, consumer_tag=tag)
        self.channel.start_consuming()

    def until(self, is_so: Callable[[], bool]) -> None:
        """Waits."""
        deadline = monotonic() + 60
        while not is_so():
            assert monotonic() < deadline
            self.connection.process_data_events(time_limit=0.02)

    def count(self, queue: str) -> int:
        """Ready messages, as the broker says."""
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)


def first_part(broker: BrokerProcess, memory: Memory) -> None:
    """Everything but retries; ends with a kill, after a confirm that all before it is on the disk."""
    one = Teller(broker, memory, "/")
    one.declare(DEAD)
    one.declare(WORK, x_dead_letter_exchange="", x_dead_letter_routing_key=DEAD)
    one.declare(RING, x_ring_size=10)
    one.declare(SHORT, x_message_ttl=1)
    one.declare(LOST)
    one.declare(PASSING)
    for number in range(40):
        one.publish(WORK, f"w={number}", b"x" * number)
    one.take(WORK, "steady", ["ack"] * 20 + ["again", "ack"] * 5 + ["reject"] * 5)
    for _ in range(5):
        memory.gone("/", WORK, "dead_lettered")
        memory.came("/", DEAD)
    for number in range(25):
        one.publish(RING, f"{number}", b"r" * (number + 1))
        if number < 15:
            memory.gone("/", RING, "evicted", number + 1)
    for number in range(7):
        one.publish(SHORT, f"s{number}", b"short")
        memory.gone("/", SHORT, "expired", 5)
    one.until(lambda: one.count(SHORT) == 0)
    for number in range(3):
        one.publish(LOST, f"l{number}", b"lost")
    one.take(LOST, "hasty", ["reject"] * 3)
    for _ in range(3):
        memory.gone("/", LOST, "killed", 4)
    for number in range(6):
        one.publish(PASSING, f"p{number}", b"transient", mode=1)
        memory.gone("/", PASSING, "ended")
    odd = Teller(broker, memory, ODD)
    odd.declare(HOSTILE)
    for number in range(8):
        odd.publish(HOSTILE, f"{number}", "ö".encode() * number)
    odd.take(HOSTILE, TAG, ["ack"] * 8)
    odd.publish(HOSTILE, "last", b"")
    one.take(WORK, "doomed", ["hold"] * 2)
    Teller(broker, memory, "/").publish(DEAD, "barrier", b"")
    broker.process.send_signal(signal.SIGKILL)
    broker.process.wait(60)


async def retries(broker: BrokerProcess, memory: Memory) -> None:
    """With aio-pika: three attempts, with delays of 100 and 200 ms."""
    connection = await aio_pika.connect(f"amqp://teller:t@127.0.0.1:{broker.port}/{SHOP}")
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        await channel.declare_queue(FAILED, durable=True)
        arguments: Any = {
            "x-redelivery-delay": 100, "x-redelivery-delay-multiplier": 2, "x-max-delivery-attempts": 3,
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": FAILED,
        }  # fmt: skip
        queue = await channel.declare_queue(RETRY, durable=True, arguments=arguments)
        for number in range(4):
            message = aio_pika.Message(b"try", message_id=f"t{number}", delivery_mode=2)
            await channel.default_exchange.publish(message, routing_key=RETRY)
            memory.came(SHOP, RETRY)
        done = asyncio.Event()
        count = 0

        async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            nonlocal count
            memory.got(SHOP, RETRY, "aio", str(message.message_id))
            await message.nack(requeue=True)
            count += 1
            if count == 12:
                done.set()

        await queue.consume(on_message, consumer_tag="aio")
        await asyncio.wait_for(done.wait(), 60)
        for _ in range(4):
            memory.gone(SHOP, RETRY, "dead_lettered")
            memory.came(SHOP, FAILED)


def second_part(broker: BrokerProcess, memory: Memory) -> None:
    """After the kill: what was held comes again."""
    one = Teller(broker, memory, "/")
    one.take(WORK, "late", ["ack"] * 3)
    asyncio.run(retries(broker, memory))
    shop = Teller(broker, memory, SHOP)
    shop.until(lambda: shop.count(FAILED) == 4)
    tellers = {"/": one, SHOP: shop, ODD: Teller(broker, memory, ODD)}
    for (vhost, queue, fate), count in memory.fates.items():
        if fate == "open":
            assert tellers[vhost].count(queue) == count, queue


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Memory]:
    """The data directory, and what the clients know."""
    directory = tmp_path_factory.mktemp("told")
    memory, data = Memory(), directory / "data"
    secret = directory / "leveret.toml"
    secret.touch(mode=0o600)
    with leveret_serve(directory, config=CONFIG, data=data) as broker:
        first_part(broker, memory)
    with leveret_serve(directory, config=CONFIG, data=data) as broker:
        second_part(broker, memory)
        assert broker.stop() == 0
    return data, memory


@pytest.fixture(scope="module")
def memory(story: tuple[Path, Memory]) -> Memory:
    """What the clients know."""
    return story[1]


@pytest.fixture(scope="module")
def tables(story: tuple[Path, Memory], engine: Any) -> Tables:
    """The lake, for one engine."""
    lake = str(story[0].parent / "lake")
    ingest(None, IngestOptions(str(story[0]), lake, payloads=True), Progress("ingest"))
    return open_tables(lake, engine)


def names(tables: Tables) -> dict[int, str]:
    """The clients' names of messages, by the broker's."""
    text = "SELECT msg_id, properties_json FROM payloads"
    return {row["msg_id"]: json.loads(row["properties_json"]).get("message_id") for row in tables.engine.stream(text)}


def test_fates(tables: Tables, memory: Memory) -> None:
    """Each message of each queue, and no fault."""
    assert answered(tables, "audit", audit(tables).faults) == []
    found = Counter((one.vhost, one.queue, one.fate) for one in answered(tables, "fates", fates(tables)))
    assert found == +memory.fates


def test_losses(tables: Tables, memory: Memory) -> None:
    """Messages and octets, by cause: a ring's and dead letters that arrived are none."""
    others: Counter[tuple[str, str, str]] = Counter()
    found: dict[tuple[str, str, str], tuple[int, int]] = {}
    for one in answered(tables, "loss", loss(tables)):
        n, octets = found.get((one.vhost, one.queue, one.cause), (0, 0))
        found[one.vhost, one.queue, one.cause] = (n + one.n, octets + one.bytes)
        others[one.vhost, one.queue, one.cause] += one.moved + one.discarded
        assert not one.refused
    gone = {key: count for key, count in memory.fates.items() if key[2] in (*LOSES, "evicted", "dead_lettered")}
    assert {key: one for key, one in found.items() if one[0]} == {
        key: (count, memory.octets[key]) for key, count in gone.items() if key[2] in LOSES
    }
    assert +others == {key: count for key, count in gone.items() if key[2] not in LOSES}


def test_depths(tables: Tables, memory: Memory) -> None:
    """What is left, the peak, and all that came and went: transient messages went with the broker."""
    rows: dict[Key, list[Any]] = {}
    for one in answered(tables, "depth", depth(tables, 1)):
        rows.setdefault((one.vhost, one.queue), []).append(one)
    left = {(vhost, queue): 0 for vhost, queue, _ in memory.fates}
    came = Counter(left)
    for (vhost, queue, fate), count in memory.fates.items():
        left[vhost, queue] += count if fate == "open" else 0
        came[vhost, queue] += count
    assert {key: some[-1].depth_end for key, some in rows.items()} == left
    assert {key: round(sum(one.in_per_s for one in some)) for key, some in rows.items()} == came
    assert {key: round(sum(one.out_per_s for one in some)) for key, some in rows.items()} == {
        key: came[key] - left[key] for key in came
    }
    peaks = {key: max(one.depth_max for one in some) for key, some in rows.items()}
    assert {key: peaks[key] for key in (("/", WORK), ("/", RING), ("/", LOST), ("/", PASSING), (SHOP, RETRY))} == {
        ("/", WORK): 40, ("/", RING): 10, ("/", LOST): 3, ("/", PASSING): 6, (SHOP, RETRY): 4,
    }  # fmt: skip
    assert all(one.depth_min >= 0 for some in rows.values() for one in some)
    assert rows["/", RING][-1].bytes_end == sum(range(16, 26))
    assert rows["/", PASSING][-1].bytes_end == 0


def test_deliveries(tables: Tables, memory: Memory) -> None:
    """By consumer; and how many messages had one at all."""
    rows = answered(tables, "fairness", fairness(tables))
    assert {(one.vhost, one.queue, one.consumer): one.deliveries for one in rows} == memory.delivered
    assert Counter({(one.vhost, one.queue, one.consumer): one.acked for one in rows}) == memory.acked
    shares: Counter[Key] = Counter()
    for one in rows:
        shares[one.vhost, one.queue] += one.share
    assert {key: round(share, 9) for key, share in shares.items()} == {(v, q): 1.0 for v, q, _ in memory.delivered}
    waited: Counter[Key] = Counter()
    for one in answered(tables, "latency", latency(tables)):
        waited[one.vhost, one.queue] += one.n
        assert 0 <= one.queue_ms_p50 <= one.queue_ms_p99
    assert waited == {key: len(seen) for key, seen in memory.seen.items()}


def test_redeliveries(tables: Tables, memory: Memory) -> None:
    """What came again, what died, and how long it was kept back."""
    called, rows = names(tables), answered(tables, "redelivery", redelivery(tables))
    dead = {one.msg_id for one in rows if one.dead}
    assert {(one.vhost, one.queue, called[one.msg_id]) for one in rows} == {
        key for key, count in memory.again.items() if count > 1
    } | {("/", WORK, f"w={number}") for number in range(25, 30)} | {("/", LOST, f"l{number}") for number in range(3)}
    assert {(one.vhost, one.queue, called[one.msg_id]): one.redeliveries for one in rows if one.redeliveries} == {
        key: count - 1 for key, count in memory.again.items() if count > 1
    }
    assert Counter((one.vhost, one.queue) for one in rows if one.msg_id in dead) == {
        ("/", WORK): 5, ("/", LOST): 3, (SHOP, RETRY): 4,
    }  # fmt: skip
    tried = [one for one in rows if one.queue == RETRY]
    assert [(one.attempts, one.requeues, one.poison) for one in tried] == [(3, 2, True)] * 4
    for one in tried:  # what is left of a delay when its record is stamped: a broker that has to wait writes less of it
        assert all(pause <= most for pause, most in zip(reversed(one.backoff_ms), (200, 100), strict=False))
        assert len(one.backoff_ms) <= 2
    assert [one.attempts for one in rows if one.queue == LOST] == [1] * 3


def test_dead_letters(tables: Tables, memory: Memory) -> None:
    """Why they died, and where they are."""
    rows = answered(tables, "deadletters", deadletters(tables))
    assert {(one.queue, one.kind, one.reason, one.outcome, tuple(one.arrived_in), one.n) for one in rows} == {
        (WORK, "dead_lettered", "rejected", "arrived", (DEAD,), 5),
        (RETRY, "dead_lettered", "delivery_limit", "arrived", (FAILED,), 4),
        (SHORT, "expired", "expired", "gone", (), 7),
        (LOST, "killed", "rejected", "gone", (), 3),
    }


def test_one_message(tables: Tables, memory: Memory) -> None:
    """By the id that its publisher gave it, with an equals sign in it."""
    rows = answered(tables, "trace", trace(tables, "w=21"))
    assert [one.kind for one in rows] == ["published", "enqueued", *["delivered", "requeued"], "delivered", "acked"]
    assert {one.consumer for one in rows if one.kind == "delivered"} == {"steady"}


def test_nobody_waited(tables: Tables, memory: Memory) -> None:
    """No limit, no blocked publisher."""
    assert answered(tables, "blocked", blocked(tables)) == []


def test_the_command_agrees(story: tuple[Path, Memory], memory: Memory) -> None:
    """One step from the journal, without Java, with names as they are."""
    command = [sys.executable, "-m", "leveret", "pipeline", "audit,fairness", "--journal", str(story[0]), "--engine"]
    ended = subprocess.run([*command, "local", "--format", "json"], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    found, consumers = [json.loads(line) for line in ended.stdout.splitlines()]
    counted: Counter[str] = Counter()
    for (_, _, fate), count in memory.fates.items():
        counted[fate] += count
    assert found["fates"] == +counted and found["table"] == []
    assert (ODD, HOSTILE, TAG) in {(one["vhost"], one["queue"], one["consumer"]) for one in consumers["table"]}


def test_what_happened_happens_again(story: tuple[Path, Memory]) -> None:
    """Under the settings that were in force; with one attempt it does not."""
    lake = story[0].parent / "verified"
    command = [sys.executable, "-m", "leveret", "pipeline", "whatif", "--verify", "--engine", "local"]
    where = ["--journal", str(story[0]), "--lake", str(lake), "--format", "json"]
    ended = subprocess.run([*command, *where], capture_output=True, text=True, timeout=300)
    found = json.loads(ended.stdout)
    assert (ended.returncode, found["table"], found["differing"]) == (0, [], 0), ended.stderr
    assert found["compared"] >= 8 * 8
    other = story[0].parent / "other.toml"
    other.write_text(f'[[address-setting]]\nmatch = "{WORK}"\nmax-delivery-attempts = 1\n')
    ended = subprocess.run([*command, *where, "--settings", str(other)], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2, ended.stderr
