"""Three real brokers in one lake: each number of each job, by node and together, as their clients remember it.

East has dead letters over three queues, a ring, priorities, leases, a stream with two readers, expiry, refusals and a
purge. A program moves some of its dead letters to west, where they die once more. North is killed while 20 messages are
out. Then a part of north's journal is damaged and repaired, and a second lake has the hole. On both engines, whose rows
are the same: `make three-brokers`.
"""

from __future__ import annotations

import io
import shutil
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest
from broker_process import BrokerProcess, leveret_serve

pytest.importorskip("duckdb", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from damage import blocks_of, harm

from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import segments_in
from leveret.journal.recovery.repair import repair
from leveret.pipeline.__main__ import main
from leveret.pipeline.jobs.commands import run
from leveret.pipeline.options import parse
from leveret.pipeline.progress import Progress

pytestmark = pytest.mark.spark
CONFIG = '[journal]\nscope = "all"\n'
Place = tuple[str, str]


class Truth:
    """What the clients know, by (node, queue)."""

    def __init__(self) -> None:
        self.fates: Counter[tuple[str, str, str]] = Counter()
        self.deliveries: dict[Place, Counter[str]] = {}
        self.acks: Counter[Place] = Counter()  # also those of streams

    def settled(self, node: str, queue: str, fate: str, count: int = 1) -> None:
        self.fates[node, queue, fate] += count
        self.fates[node, queue, "open"] -= count

    def of(self, fate: str) -> dict[Place, int]:
        return {key[:2]: n for key, n in self.fates.items() if key[2] == fate and n}


class Client:
    """One connection to a broker, with confirms."""

    def __init__(self, broker: BrokerProcess, node: str, truth: Truth) -> None:
        self.node, self.truth = node, truth
        self.connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def declare(self, name: str, **arguments: object) -> None:
        table = {key.replace("_", "-"): value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments=table)

    def publish(self, queue: str, id_: str, **properties: Any) -> bool:
        """Whether the broker took it."""
        try:
            about = pika.BasicProperties(message_id=id_, delivery_mode=2, **properties)
            self.channel.basic_publish("", queue, b"x" * (20 + len(id_)), about)
        except pika.exceptions.NackError:
            self.truth.fates[self.node, queue, "dropped"] += 1
            return False
        self.truth.fates[self.node, queue, "open"] += 1
        return True

    def got(self, queue: str, id_: str) -> None:
        self.truth.deliveries.setdefault((self.node, queue), Counter())[id_] += 1

    def take(self, queue: str) -> tuple[Any, Any]:
        """One message, which stays unacknowledged: its delivery tag and properties."""
        method, properties, _ = self.channel.basic_get(queue)
        assert method is not None, queue
        self.got(queue, properties.message_id)
        return method.delivery_tag, properties

    def ack(self, queue: str) -> Any:
        """Take one message and acknowledge it. Returns its properties."""
        tag, properties = self.take(queue)
        self.channel.basic_ack(tag)
        self.truth.acks[self.node, queue] += 1
        self.truth.settled(self.node, queue, "acked")
        return properties

    def reject(self, queue: str, to: str) -> None:
        self.channel.basic_reject(self.take(queue)[0], requeue=False)
        self.truth.settled(self.node, queue, "dead_lettered")
        self.truth.fates[self.node, to, "open"] += 1

    def read(self, queue: str, count: int) -> None:
        """Read a stream from its beginning, and acknowledge each message."""
        self.channel.basic_qos(prefetch_count=1)
        for method, properties, _ in self.channel.consume(queue, arguments={"x-stream-offset": "first"}):
            self.got(queue, properties.message_id)
            self.channel.basic_ack(method.delivery_tag)
            self.truth.acks[self.node, queue] += 1
            if sum(self.truth.deliveries[self.node, queue].values()) % count == 0:
                break
        self.connection.close()

    def lease(self, queue: str, count: int) -> None:
        """Let the first leases end, and acknowledge each message when it comes again, until all are gone."""
        self.channel.basic_qos(prefetch_count=count)
        missed: set[str] = set()
        acked = 0
        for method, properties, _ in self.channel.consume(queue, inactivity_timeout=60):
            assert method is not None
            self.got(queue, properties.message_id)
            if not method.redelivered and not missed:
                missed.add(properties.message_id)
                continue
            self.channel.basic_ack(method.delivery_tag)
            self.truth.acks[self.node, queue] += 1
            self.truth.settled(self.node, queue, "acked")
            acked += 1
            if acked == count:
                break
        self.channel.cancel()

    def until(self, queue: str, count: int) -> None:
        """Wait until a queue has so many ready messages."""
        while self.channel.queue_declare(queue, passive=True).method.message_count != count:
            self.connection.process_data_events(time_limit=0.02)


def tell(root: Path, truth: Truth) -> None:
    """Run the brokers and their clients."""
    with ExitStack() as stack:
        brokers = {}
        for node in ("east", "west", "north"):
            (root / f"{node}-run").mkdir()
            serving = leveret_serve(root / f"{node}-run", config=CONFIG, data=root / "brokers" / node)
            brokers[node] = stack.enter_context(serving)
        east, west, north = (Client(broker, node, truth) for node, broker in brokers.items())
        tell_of_dead_letters(east, west)
        for client in (east, north):
            client.declare("log", x_queue_type="stream")
            for number in range(30):
                client.publish("log", f"log-{number}")
        for _ in range(2):
            Client(brokers["east"], "east", truth).read("log", 30)
            Client(brokers["north"], "north", truth).read("log", 30)
        tell_of_other_queues(east, brokers["east"])
        north.declare("jobs")
        for number in range(200):
            north.publish("jobs", f"jobs-{number}")
        for _ in range(80):
            north.ack("jobs")
        for _ in range(20):
            north.take("jobs")
        Client(brokers["north"], "north", truth).publish("jobs", "barrier")  # what was before it is on the disk
        brokers["north"].process.send_signal(signal.SIGKILL)
        brokers["north"].process.wait(60)
        (root / "north-again").mkdir()
        again = stack.enter_context(leveret_serve(root / "north-again", config=CONFIG, data=root / "brokers" / "north"))
        client = Client(again, "north", truth)
        for _ in range(50):
            client.ack("jobs")
        for number in range(20):
            client.publish("jobs", f"late-{number}")
        for broker in (brokers["east"], brokers["west"], again):
            assert broker.stop() == 0


def tell_of_dead_letters(east: Client, west: Client) -> None:
    """60 messages; 30 die at work, 20 of these at retry; 12 of these are moved to west, where 5 die."""
    for client, name, to in ((east, "work", "retry"), (east, "retry", "dead"), (west, "dead", "parked")):
        client.declare(name, x_dead_letter_exchange="", x_dead_letter_routing_key=to)
    east.declare("dead")
    west.declare("parked")
    for number in range(60):
        east.publish("work", f"work-{number}")
    for number in range(60):
        east.reject("work", "retry") if number % 2 else east.ack("work")
    for number in range(30):
        east.reject("retry", "dead") if number >= 10 else east.ack("retry")
    for _ in range(12):
        west.publish("dead", east.ack("dead").message_id)
    for number in range(12):
        west.reject("dead", "parked") if number >= 7 else west.ack("dead")


def tell_of_other_queues(east: Client, broker: BrokerProcess) -> None:
    truth = east.truth
    east.declare("ring", x_ring_size=10)
    for number in range(35):
        east.publish("ring", f"ring-{number}")
    truth.settled("east", "ring", "evicted", 25)
    for _ in range(4):
        east.ack("ring")
    east.declare("short", x_message_ttl=1)
    for number in range(15):
        east.publish("short", f"short-{number}")
    east.until("short", 0)
    truth.settled("east", "short", "expired", 15)
    east.declare("full", x_max_length=5, x_overflow="reject-publish")
    assert [east.publish("full", f"full-{number}") for number in range(8)] == [True] * 5 + [False] * 3
    east.declare("prio", x_max_priority=5)
    for number in range(20):
        east.publish("prio", f"prio-{number}", priority=number % 6)
    for _ in range(12):
        east.ack("prio")
    leaving = Client(broker, "east", truth)
    for _ in range(5):
        leaving.take("prio")
    leaving.connection.close()
    east.until("prio", 8)
    for _ in range(6):
        east.ack("prio")
    east.channel.queue_purge("prio")
    truth.settled("east", "prio", "purged", 2)
    east.declare("leased", x_queue_type="amps", x_lease_period=2000)
    for number in range(5):
        east.publish("leased", f"leased-{number}")
    Client(broker, "east", truth).lease("leased", 5)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """The lakes `whole` and `repaired`, and the truth."""
    root, truth = tmp_path_factory.mktemp("three"), Truth()
    tell(root, truth)
    brokers, north = root / "brokers", root / "brokers" / "north"
    assert main(["ingest", "--journal", str(brokers), "--lake", str(root / "whole"), "--payloads"]) == 0
    base = segments_in(REAL, str(north))[0]
    blocks = blocks_of(north, base)
    harm(north, base, blocks[len(blocks) * 2 // 3][0])
    shutil.move(north, root / "damaged")
    repair(str(root / "damaged"), str(north))
    assert main(["ingest", "--journal", str(brokers), "--lake", str(root / "repaired"), "--payloads"]) == 0
    return root, truth


class Asker:
    """Asks both lakes with one engine; remembers all rows, for the other engine to have the same."""

    rows: dict[tuple[str, ...], list[dict[str, Any]]] = {}

    def __init__(self, engine: Any, root: Path) -> None:
        self.engine, self.root = engine, root

    def ask(self, *words: str, lake: str = "whole", table: str = "") -> tuple[Any, list[dict[str, Any]]]:
        """An answer, and the rows of its first table, or of another one."""
        options = parse([words[0], "--lake", str(self.root / lake), *words[1:]])
        answer = run(self.engine, words[0], options, Progress(words[0], io.StringIO()))
        chosen = answer.tables.get(table, answer.main)
        rows = [] if chosen is None else list(chosen.head())
        assert self.rows.setdefault((lake, table, *words), rows) == rows, "the engines differ"
        return answer, rows


@pytest.fixture(scope="module")
def asker(engine: Any, story: tuple[Path, Truth]) -> Asker:
    return Asker(engine, story[0])


def test_fates_and_depths(asker: Asker, story: tuple[Path, Truth], tmp_path: Path) -> None:
    truth = story[1]
    answer, faults = asker.ask("audit")
    assert (faults, answer.code) == ([], 0)
    for node, facts in answer.facts["nodes"].items():
        told = Counter[str]()
        for (of, _, fate), count in truth.fates.items():
            told[fate] += count if of == node else 0
        assert facts["fates"] == +told, node
    _, fates = asker.ask("audit", "--out", str(tmp_path), table="message_fate")
    assert Counter((row["node"], row["queue"], row["fate"]) for row in fates) == +truth.fates
    _, depths = asker.ask("depth", "--window", "1")
    last = {(row["node"], row["queue"]): row["depth_end"] for row in depths}
    assert {key: n for key, n in last.items() if n} == truth.of("open")
    assert max(row["depth_max"] for row in depths if row["queue"] == "ring") == 10


def test_losses_and_dead_letters(asker: Asker, story: tuple[Path, Truth]) -> None:
    truth, found = story[1], Counter[tuple[str, str, str, str]]()
    for row in asker.ask("loss")[1]:
        for outcome in ("n", "moved", "refused", "discarded"):
            found[row["node"], row["queue"], row["cause"], outcome] += row[outcome]
    outcomes = {
        "dead_lettered": "moved",
        "expired": "n",
        "dropped": "refused",
        "evicted": "discarded",
        "purged": "discarded",
    }
    assert +found == {(*key, outcomes[key[2]]): n for key, n in truth.fates.items() if key[2] in outcomes}
    dead = {(row["node"], row["queue"], *row["arrived_in"]): row["n"] for row in asker.ask("deadletters")[1]}
    assert dead == {
        ("east", "work", "retry"): 30, ("east", "retry", "dead"): 20, ("east", "short"): 15,
        ("west", "dead", "parked"): 5,
    }  # fmt: skip


def test_deliveries_and_redeliveries(asker: Asker, story: tuple[Path, Truth]) -> None:
    truth = story[1]
    delivered, acked, waited = Counter[Place](), Counter[Place](), Counter[Place]()
    for row in asker.ask("fairness")[1]:
        delivered[row["node"], row["queue"]] += row["deliveries"]
        acked[row["node"], row["queue"]] += row["acked"]
    assert delivered == {key: sum(counts.values()) for key, counts in truth.deliveries.items()}
    assert acked == truth.acks
    for row in asker.ask("latency")[1]:
        waited[row["node"], row["queue"]] += row["n"]
    assert waited == {key: len(counts) for key, counts in truth.deliveries.items()}
    again = Counter[Place]()
    for row in asker.ask("redelivery")[1]:
        again[row["node"], row["queue"]] += row["redeliveries"]
    streams = (("east", "log"), ("north", "log"))
    assert +again == {
        key: sum(counts.values()) - len(counts)
        for key, counts in truth.deliveries.items()
        if key not in streams and sum(counts.values()) > len(counts)
    }
    assert again["north", "jobs"] == 20, "the killed broker had them out"
    assert asker.ask("blocked")[1] == []


def test_what_would_have_been_is_what_was(asker: Asker) -> None:
    answer, differing = asker.ask("whatif", "--verify")
    assert (differing, answer.facts["differing"], answer.code) == ([], 0, 0)
    assert "log" in answer.facts["nodes"]["east"]["left_out"]


def test_a_message_over_two_brokers_and_five_queues(asker: Asker) -> None:
    """The last one that was moved died at west: it is found by its id, from both ends."""
    parked = asker.ask("trace", "work-43")[1]
    way = [(row["node"], row["queue"]) for row in parked if row["kind"] == "enqueued"]
    assert way == [("east", "work"), ("east", "retry"), ("east", "dead"), ("west", "dead"), ("west", "parked")]
    assert asker.ask("trace", "work-43", "--node", "west")[1] == parked
    chosen = asker.ask("replay", "--node", "west", "--where", "queue = 'parked' AND kind = 'enqueued'")[1]
    assert len(chosen) == 5


def test_a_report_of_all(asker: Asker, story: tuple[Path, Truth], tmp_path: Path) -> None:
    truth = story[1]
    asker.ask("report", "--out", str(tmp_path / "all.html"))
    page = (tmp_path / "all.html").read_text()
    acked = sum(truth.of("acked").values())
    read = sum(count for (_, queue), count in truth.acks.items() if queue == "log")
    totals = {"acknowledged": acked, "read in streams": read, "dead-lettered": 55, "lost": 15, "refused": 3}
    totals |= {"discarded on purpose": 27, "left in queues": sum(truth.of("open").values())}
    for name, count in totals.items():
        assert f"<b>{count}</b> {name}" in page, name


def test_the_repaired_hole(asker: Asker, story: tuple[Path, Truth], tmp_path: Path) -> None:
    """Nothing is blamed on the broker; what a hole may explain is unknown; the other nodes are as before."""
    answer, faults = asker.ask("audit", lake="repaired")
    assert (faults, answer.code) == ([], 0)
    assert answer.facts["holes"].startswith("north: ") and "before a repair" in answer.facts["holes"]
    assert {*answer.facts["nodes"]["north"]} >= {"holes", "unknown"}
    for job in ("depth", "loss", "redelivery", "deadletters"):
        others = [row for row in asker.ask(job)[1] if row["node"] != "north"]
        assert [row for row in asker.ask(job, lake="repaired")[1] if row["node"] != "north"] == others, job
    assert asker.ask("whatif", "--verify", lake="repaired")[0].code == 0
    asker.ask("report", "--out", str(tmp_path / "all.html"), lake="repaired")
    assert "lost before a repair" in (tmp_path / "all.html").read_text()
