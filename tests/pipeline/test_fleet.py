"""Several brokers in one lake: a story of three, each job by node and over all, and what is refused. On both engines.

The story remembers what its clients did: dead letters over three queues of one broker and, by a shovel that keeps the
message ids, a queue of another; a stream; a third broker whose journal was damaged and repaired. What takes long has
the mark of Spark's tests on both engines: `make spark` runs it.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")

from damage import as_node_of_a_cluster
from lakes import fill, in_journal, in_lake
from pyarrow import parquet
from recorded_broker import RecordedBroker
from told_events import at, told

from leveret.journal import JournalError
from leveret.journal.disk.files import REAL
from leveret.journal.disk.segment import opened, segments_in
from leveret.journal.disk.segment_scan import SegmentScan
from leveret.journal.recovery.repair import repair
from leveret.pipeline.__main__ import main
from leveret.pipeline.engines.protocol import rows
from leveret.pipeline.jobs.audit import allowed
from leveret.pipeline.jobs.commands import run
from leveret.pipeline.jobs.opening import open_log
from leveret.pipeline.jobs.outputs import REPLAY_LOG, conform
from leveret.pipeline.lake.ingest import lake_position
from leveret.pipeline.lake.ingest_sources import sources_named
from leveret.pipeline.lake.lake import COMMIT_ORDER, committed_files
from leveret.pipeline.lake.nodes import Node, add_node, nodes_of
from leveret.pipeline.options import parse
from leveret.pipeline.output.formats import as_text
from leveret.pipeline.progress import Progress
from leveret.pipeline.reading.positions import JournalPlan

NODES = ("east", "north", "west")
WORKED, REJECTED, DIED = 16, 8, 5  # published; rejected at the first queue, and at the second
SHOVELED, PARKED = 4, 1
READ = 3  # of the stream, by each of two
Told = Counter[tuple[str, str, str]]


def letters(key: str) -> dict[str, Any]:
    return {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": key}


def queue(broker: RecordedBroker, name: str, **arguments: Any) -> None:
    broker.queue(name, client=broker.client, **arguments)
    broker.settle()


def settle(broker: RecordedBroker, name: str, *, reject: bool = False) -> Any:
    """Take one message; returns it."""
    got = broker.session.get(broker.named(name), no_ack=False)
    assert got is not None
    broker.session.reject(got[0], requeue=False) if reject else broker.session.ack(got[0])
    broker.settle()
    broker.clock.advance_ns(1_000_000)
    return got[1]


def tell(root: Path) -> Told:
    """Write the three journals. Returns how many messages of each node and queue met which fate."""
    fates: Told = Counter()
    east, west = (RecordedBroker(root / name / "journal") for name in ("east", "west"))
    for name, key in (("work", "retry"), ("retry", "dead")):
        queue(east, name, **letters(key))
    queue(east, "dead")
    queue(east, "log", x_queue_type="stream")
    queue(west, "dead", **letters("parked"))
    queue(west, "parked")
    for number in range(WORKED):
        east.publish("work", message_id=f"m{number}".encode())
    for number in range(WORKED):
        settle(east, "work", reject=number < REJECTED)
    fates["east", "work", "dead_lettered"], fates["east", "work", "acked"] = REJECTED, WORKED - REJECTED
    for number in range(REJECTED):
        settle(east, "retry", reject=number < DIED)
    fates["east", "retry", "dead_lettered"], fates["east", "retry", "acked"] = DIED, REJECTED - DIED
    for number in range(SHOVELED):
        settle(east, "dead")
        west.publish("dead", message_id=f"m{number}".encode())
    fates["east", "dead", "acked"], fates["east", "dead", "open"] = SHOVELED, DIED - SHOVELED
    for number in range(SHOVELED):
        settle(west, "dead", reject=number < PARKED)
    fates["west", "dead", "dead_lettered"], fates["west", "dead", "acked"] = PARKED, SHOVELED - PARKED
    fates["west", "parked", "open"] = PARKED
    east.publish("log", 6)
    fates["east", "log", "open"] = 6
    for one in (east, west):
        one.tick()
        one.close()
    north = RecordedBroker(root / "damaged", segment_size=6000)
    north.declare("q")
    for _ in range(20):
        north.publish("q", 3)
        north.get("q", 3)
    north.tick()
    north.close()
    return fates


def lose_some(path: Path) -> tuple[int, int]:
    """Damage a journal in a block that is not its first. Returns the first and last record of it."""
    base = segments_in(REAL, str(path))[0]
    with opened(REAL, str(path), base) as handle:
        block = list(SegmentScan(REAL, handle, base))[8]
    with open(path / f"{base:020d}.log", "r+b") as file:
        file.seek(block.offset + 40)
        file.write(b"\xff" * 8)
    return block.header.base_lsn, block.end_lsn - 1


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told, tuple[int, int]]:
    """Journals in a directory of data directories, a lake beside them; the fates; the hole of `north`."""
    root = tmp_path_factory.mktemp("fleet")
    fates = tell(root / "brokers")
    hole = lose_some(root / "brokers" / "damaged")
    repair(str(root / "brokers" / "damaged"), str(root / "brokers" / "north" / "journal"))
    (root / "brokers" / "damaged").rename(root / "damaged")
    assert main(["ingest", "--journal", str(root / "brokers"), "--lake", str(root / "lake"), "--payloads"]) == 0
    return root, fates, hole


class Asked:
    """Jobs of one lake, by an engine."""

    def __init__(self, engine: Any, lake: Path) -> None:
        self.engine, self.lake = engine, lake

    def ask(self, *words: str) -> tuple[Any, list[dict[str, Any]]]:
        """An answer, and the rows of its first table."""
        options = parse([words[0], "--lake", str(self.lake), *words[1:]])
        answer = run(self.engine, words[0], options, Progress(words[0], io.StringIO()))
        return answer, [] if answer.main is None else list(answer.main.head())


@pytest.fixture(scope="module")
def asked(engine: Any, story: tuple[Path, Told, tuple[int, int]]) -> Asked:
    return Asked(engine, story[0] / "lake")


def test_rows_are_those_of_the_journals(story: Any) -> None:
    """Each once, with the name and the id of its node; each node has its own place."""
    root = story[0]
    assert [node.name for node in nodes_of(str(root / "lake"))] == list(NODES)
    for name, id_ in nodes_of(str(root / "lake")):
        journal = root / "brokers" / name / "journal"
        assert id_ == JournalPlan(str(journal)).journal_id
        for table in COMMIT_ORDER:
            files = committed_files(str(root / "lake"), table, journal=id_)
            read = [row for path in files for row in parquet.read_table(path, partitioning=None).to_pylist()]
            assert {(row["node"], row["journal"]) for row in read} <= {(name, id_)}
            assert len(read) == sum(in_journal(journal, table).values()), (name, table)


def test_every_number_by_node_and_together(asked: Asked, story: Any, tmp_path: Path) -> None:
    """As the clients remember."""
    _, fates, hole = story
    whole, faults = asked.ask("audit", "--out", str(tmp_path))
    in_one_file = asked.ask("audit", "--out", str(tmp_path / "faults.csv"))[0].tables
    assert in_one_file.keys() == whole.tables.keys() - {"message_fate"}, "as large as the lake, and not written there"
    assert (faults, whole.code) == ([], 0)
    every_fate = whole.tables["message_fate"].head()
    found = Counter((row["node"], row["queue"], row["fate"]) for row in every_fate if row["node"] != "north")
    assert found == +fates
    by_node = {name: Counter(facts["fates"]) for name, facts in whole.facts["nodes"].items()}
    assert sum(by_node.values(), Counter()) == Counter(whole.facts["fates"])
    assert by_node["west"] == {"dead_lettered": PARKED, "acked": SHOVELED - PARKED, "open": PARKED}
    shown = as_text(whole, None).splitlines()
    assert any(line.startswith(f"west: fates: {SHOVELED - PARKED} acked, {PARKED} dead_lettered") for line in shown)
    assert "{" not in "".join(shown)
    assert f"{hole[0]} to {hole[1]}" in whole.facts["holes"] and whole.facts["holes"].startswith("north: ")
    _, depths = asked.ask("depth")
    last = {(row["node"], row["queue"]): row["depth_end"] for row in depths if row["node"] != "north"}
    assert {key: n for key, n in last.items() if n} == {key[:2]: n for key, n in fates.items() if key[2] == "open"}


@pytest.mark.spark
def test_more_numbers_by_node_and_together(asked: Asked, story: Any) -> None:
    """Of the other jobs; the rows of a node are those of all of them that have its name."""
    fates = story[1]
    _, lost = asked.ask("loss")
    moved = {(row["node"], row["queue"]): (row["moved"], row["n"]) for row in lost}
    assert moved == {("east", "work"): (REJECTED, 0), ("east", "retry"): (DIED, 0), ("west", "dead"): (PARKED, 0)}
    _, times = asked.ask("latency")
    came = Counter({(row["node"], row["queue"]): row["n"] for row in times})
    wanted = Counter[tuple[str, str]]()
    for (node, name, fate), count in fates.items():
        wanted[node, name] += count if fate != "open" else 0
    assert {key: n for key, n in came.items() if key[0] != "north"} == +wanted
    _, again = asked.ask("redelivery")
    assert Counter((row["node"], row["queue"]) for row in again) == {key: n for key, (n, _) in moved.items()}
    _, shares = asked.ask("fairness")
    acked = Counter({(row["node"], row["queue"]): row["acked"] for row in shares if row["node"] != "north"})
    assert +acked == {key[:2]: n for key, n in fates.items() if key[2] == "acked"}
    _, dead = asked.ask("deadletters")
    assert {(row["node"], row["queue"], *row["arrived_in"]): row["n"] for row in dead} == {
        ("east", "work", "retry"): REJECTED, ("east", "retry", "dead"): DIED, ("west", "dead", "parked"): PARKED,
    }  # fmt: skip
    assert asked.ask("blocked")[1] == []
    compared = asked.ask("whatif", "--verify")[0]
    assert compared.facts["differing"] == sum(one["differing"] for one in compared.facts["nodes"].values())
    assert {compared.facts["nodes"][name]["differing"] for name in ("east", "west")} == {0}
    assert "east: not simulated" in compared.facts["left_out"]
    for job, every in (("depth", asked.ask("depth")[1]), ("loss", lost)):
        assert asked.ask(job, "--node", "west")[1] == [row for row in every if row["node"] == "west"], job


@pytest.mark.spark
def test_a_report_has_the_nodes_beside_each_other(asked: Asked, story: Any, tmp_path: Path) -> None:
    """Their totals are those of the jobs; a page for each node, with the same windows; the hole; what to paste."""
    answer, _ = asked.ask("report", "--out", str(tmp_path / "all.html"))
    assert answer.facts["file"] == str(tmp_path / "all.html")
    assert {one.name for one in tmp_path.iterdir()} == {"all.html", *(f"all-{name}.html" for name in NODES)}
    page = (tmp_path / "all.html").read_text()
    audited = asked.ask("audit")[0]
    fates = audited.facts["fates"]
    for total, count in (("acknowledged", fates["acked"]), ("left in queues", fates["open"]), ("lost", 0)):
        assert f"<b>{count}</b> {total}" in page, total
    for name, facts in audited.facts["nodes"].items():
        assert f'<a href="all-{name}.html">' in page
        one = (tmp_path / f"all-{name}.html").read_text()
        assert f"<b>{facts['fates']['acked']}</b> acknowledged" in one
        assert re.search(r'"window_s":(\d+)', one)[1] == re.search(r'"window_s":(\d+)', page)[1]  # type: ignore[index]
    for name in ("all", "all-north"):
        assert f"<td>{story[2][0]} to {story[2][1]}</td>" in (tmp_path / f"{name}.html").read_text()
    assert f"trace --lake {asked.lake} --node east 1</code>" in page


@pytest.mark.spark
def test_a_message_is_followed_from_broker_to_broker(asked: Asked) -> None:
    """Wherever it is looked for first: over three queues of one, and two of another."""
    _, way = asked.ask("trace", "m0")
    steps = [(row["node"], row["kind"], row["queue"]) for row in way if row["kind"] in ("enqueued", "acked")]
    assert Counter(steps) == Counter(
        [
            ("east", "enqueued", "work"), ("east", "enqueued", "retry"), ("east", "enqueued", "dead"),
            ("east", "acked", "dead"), ("west", "enqueued", "dead"), ("west", "enqueued", "parked"),
        ]
    )  # fmt: skip
    assert asked.ask("trace", "m0", "--node", "west")[1] == way
    assert {row["node"] for row in asked.ask("trace", f"m{WORKED - 1}")[1]} == {"east"}
    with pytest.raises(ValueError, match="no message 'nobody'"):
        asked.ask("trace", "nobody")


@pytest.mark.spark
def test_names_that_one_node_knows(asked: Asked) -> None:
    """Are asked of all; those that none knows are wrong; a replay is of one node."""
    assert {row["node"] for row in asked.ask("depth", "--queue", "parked")[1]} == {"west"}
    with pytest.raises(ValueError, match="the lake knows no queue 'nothing'"):
        asked.ask("depth", "--queue", "nothing", "--queue", "parked")
    with pytest.raises(ValueError, match="the lake knows no node 'south'; it has east, north, west"):
        asked.ask("depth", "--node", "south")
    with pytest.raises(ValueError, match="a replay reads one node"):
        asked.ask("replay", "--where", "kind = 'dead_lettered'")
    chosen = asked.ask("replay", "--where", "kind = 'dead_lettered'", "--node", "west")
    assert len(chosen[1]) == PARKED


def test_a_replay_from_before_the_other_nodes(engine: Any, tmp_path: Path) -> None:
    """Is of the node that the lake had then, also if the name of a later node comes first."""
    lake = str(tmp_path / "lake")
    for name, message_id in (("zeta", b""), ("alpha", b"r-1")):
        broker = RecordedBroker(tmp_path / name)
        queue(broker, "q")
        broker.publish("q", message_id=message_id)
        broker.tick()
        broker.close()
        assert main(["ingest", "--journal", f"{name}={tmp_path / name}", "--lake", lake, "--payloads"]) == 0
        if name == "zeta":
            path = open_log(lake, engine)
            row = "'r' AS replay_id, 1 AS msg_id, 2 AS source_lsn, '' AS address, now() AS ts, 1 AS sent, NULL AS node"
            engine.append(conform(engine.dialect, f"SELECT {row}", REPLAY_LOG), path)
    _, way = Asked(engine, tmp_path / "lake").ask("trace", "r-1")
    assert {(row["node"], row["msg_id"]) for row in way} == {("zeta", 1), ("alpha", 1)}
    for name, count in (("zeta", 0), ("alpha", 1)):
        asked = Asked(engine, tmp_path / "lake")
        chosen = asked.ask("replay", "--id", "r", "--where", "kind = 'enqueued'", "--node", name)
        assert len(chosen[1]) == count, name


def test_a_node_that_is_still_empty(engine: Any, story: Any, tmp_path: Path) -> None:
    """As an ingest leaves it that was killed before its first commit: it hides no error, and keeps no answer back."""
    shutil.copytree(story[0] / "lake", tmp_path / "lake")
    add_node(str(tmp_path / "lake"), Node("void", "ab" * 16))
    asked = Asked(engine, tmp_path / "lake")
    with pytest.raises(ValueError, match="the lake knows no queue 'nothing'"):
        asked.ask("loss", "--queue", "nothing", "--node", "west", "--node", "void")
    answer, way = asked.ask("trace", "m0", "--node", "west")
    assert {row["node"] for row in way} == {"east", "west"} and list(answer.facts["unanswered"]) == ["void"]


#: Events of a cluster whose first leader was lost behind record 5.
TAKEN_OVER = (
    "1 0 led 0 reason={}", "2 0 published 1", "3 0 enqueued 1 q", "4 1 delivered 1 q attempt=1",
    "6 9 led 0 reason={}", "7 10 delivered 1 q attempt=1", "8 11 acked 1 q", "9 12 published 9", "10 12 enqueued 9 q",
    "11 13 delivered 9 q attempt=1", "12 14 acked 9 q",
)  # fmt: skip


def test_duplicates_that_a_takeover_allows(engine: Any) -> None:
    """What came again behind it is named, and is no fault; each message has one end."""
    payload = {
        "ts": at(0), "cause_id": 0, "vhost": "/", "address": "", "routing_key": "q", "headers_json": "{}",
        "properties_json": json.dumps({"message_id": "same"}), "body": b"", "segment": "s1",
    }  # fmt: skip
    contents = [{**payload, "lsn": 2, "msg_id": 1}, {**payload, "lsn": 9, "msg_id": 9}]
    tables = told(engine, *TAKEN_OVER, payloads=contents)
    assert [row["lsn"] for row in tables.takeovers()] == [1, 6]
    named = ("duplicate", "msg_id", "first_id", "led_lsn")
    found = {tuple(row[name] for name in named) for row in rows(engine, allowed(tables))}
    assert found == {("delivered again", 1, 1, 6), ("published again", 9, 1, 6)}


def two(root: Path) -> None:
    for name in ("a", "b"):
        with_one = RecordedBroker(root / name / "journal")
        with_one.declare("q")
        with_one.publish("q", 3)
        with_one.tick()
        with_one.close()


def test_a_lake_grows_by_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of before, whose rows name no node, too: nothing is written anew. Only by a name, or among several."""
    two(tmp_path)
    lake = tmp_path / "lake"
    fill(tmp_path / "a", lake)
    shutil.rmtree(lake / "nodes")  # as an older release left it
    old = set(committed_files(str(lake), "events"))
    assert nodes_of(str(lake)) == [Node("", JournalPlan(str(tmp_path / "a")).journal_id)]
    with pytest.raises(JournalError, match="which the lake .* has read"):
        fill(tmp_path / "b", lake)
    assert main(["ingest", "--journal", f"second={tmp_path / 'b'}", "--lake", str(lake)]) == 0
    both = ["--journal", str(tmp_path / "a"), "--journal", str(tmp_path / "b")]
    assert main(["ingest", *both, "--lake", str(lake)]) == 0
    assert old <= set(committed_files(str(lake), "events"))
    assert len(nodes_of(str(lake))) == 2 and {node.name for node in nodes_of(str(lake))} >= {"second"}
    capsys.readouterr()
    assert main(["depth", "--lake", str(lake), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [row["depth_end"] for row in answer["table"]] == [3, 3]


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same journal twice, a copy, two of one name, a name that is taken; one that is missing keeps none back."""
    two(tmp_path)
    a, b, lake = str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "lake")
    shutil.copytree(a, tmp_path / "copy")
    for words, said in (
        ([a, f"x={a}/journal"], "are the same journal"),
        ([a, str(tmp_path / "copy")], "one is a copy of the other"),
        ([f"n={a}", f"n={b}"], "both would be node 'n'"),
        ([f"={a}"], "is not a name for a node"),
        ([str(tmp_path / "none")], "no journal here"),
    ):
        given = [word for one in words for word in ("--journal", one)]
        assert main(["ingest", *given, "--lake", lake]) == 1, words
        assert said in capsys.readouterr().err
    listed = tmp_path / "list"
    listed.write_text(f"# all\nfirst={a}\n\nlost={tmp_path / 'none'}\n")
    assert main(["ingest", "--journal", f"@{listed}", "--lake", lake]) == 1
    printed = capsys.readouterr()
    assert "node lost: " in printed.err and json.loads(printed.out)["nodes"]["first"]["rows"]["events"] > 0
    assert main(["ingest", "--journal", f"first={b}", "--lake", lake]) == 1
    assert "node 'first' of the lake" in capsys.readouterr().err
    assert main(["ingest", "--journal", f"other={a}", "--lake", lake]) == 1
    assert "is node 'first' of the lake" in capsys.readouterr().err


def test_copies_of_a_cluster_are_one_member(tmp_path: Path) -> None:
    """One of them is read."""
    two(tmp_path)
    for name in ("a", "b"):
        as_node_of_a_cluster(tmp_path / name)
    (member,), gone = sources_named([f"shop={tmp_path / 'a'}", str(tmp_path / "b"), str(tmp_path / "none")])
    assert (member.name, member.is_cluster, len(member.copies), len(gone)) == ("shop", True, 2, 1)
    choice = member.choose_copy(None)
    assert choice.place in member.copies and len(choice.others) == 1
    with pytest.raises(ValueError, match="are nodes of one cluster"):
        sources_named([f"shop={tmp_path / 'a'}", f"other={tmp_path / 'b'}"])


def test_a_copy_that_has_what_the_lake_needs(tmp_path: Path) -> None:
    """Though another one ends later: that one has deleted its oldest records, and its newest are read afterwards."""
    begin, end = tmp_path / "begin", tmp_path / "end"
    broker = RecordedBroker(begin / "journal", segment_size=3000)
    broker.declare("q")
    for _ in range(20):
        broker.publish("q", 3)
    broker.tick()
    broker.close()
    as_node_of_a_cluster(begin)
    shutil.copytree(begin, end)
    wanted = in_journal(begin)
    bases = segments_in(REAL, str(begin / "journal"))
    assert len(bases) > 3
    (end / "journal" / f"{bases[0]:020d}.log").unlink()
    (begin / "journal" / f"{bases[-1]:020d}.log").unlink()
    (member,), _ = sources_named([str(end), str(begin)])
    assert (member.choose_copy(None).place, member.choose_copy(None).is_furthest) == (str(begin), False)
    lake = tmp_path / "lake"
    assert main(["ingest", "--journal", str(end), "--journal", str(begin), "--lake", str(lake)]) == 0
    assert in_lake(lake) == wanted
    position = lake_position(str(lake), member.journal_id)
    assert (member.choose_copy(position).place, member.choose_copy(position).is_furthest) == (str(end), True)


def test_retention_though_the_last_journal_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two(tmp_path)
    lake = tmp_path / "lake"
    add_node(str(lake), Node("taken", "ab" * 16))
    given = ["--journal", str(tmp_path / "a"), "--journal", f"taken={tmp_path / 'b'}"]
    assert main(["ingest", *given, "--lake", str(lake), "--retain", "5d"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert list(result["nodes"]) == ["a"] and len(result["failed"]) == 1
    assert result["dropped"]["events"] == result["rows"]["events"] > 0
