"""A streaming query over a running broker, both killed again and again: every row once, none missing.

    python benchmarks/pipeline_live.py DIR --rate 5000 --kills 4 --broker-kills 1
    python benchmarks/pipeline_live.py DIR --source amqp [--peer rabbitmq]

A broker with `scope = "all"`, a publisher and a consumer at RATE messages per second (pipeline_traffic.py), and a
streaming query that gets SIGKILL, with its Java and its workers, while it works, and is restarted on its checkpoint;
the broker gets SIGKILL, too, and is restarted. At the end the rows of the sink by kind are compared with the journal
read without Spark, with the confirms that the publisher got on each connection, and, if the broker was never killed,
with the queue's own counters. With `--source amqp` it reads a stream queue of Leveret or RabbitMQ by offset; then every
offset must be there once, and as many as were confirmed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from leveret.interop.brokers.peers import Peer, durable_leveret, rabbitmq
from leveret.pipeline.progress import Progress
from leveret.pipeline.retries import retry_slow_workers

CONFIGURATION = '[journal]\nscope = "all"\nsegment-size = "16MiB"\nretain = "1h"\n'
#: Counter of a queue -> kind of row.
KINDS = {"enqueued": "enqueued", "delivered": "delivered", "acknowledged": "acked", "requeued": "requeued"}
#: The publisher reconnects only after a restart of the broker.
BROKER_STARTS = "kind = 'settings_changed' AND reason IS NOT NULL AND vhost = ''"
LEVERET = [sys.executable, "-m", "leveret"]
TRAFFIC = Path(__file__).with_name("pipeline_traffic.py")
QUEUE = "live"


def start(spark: Any, source: str, where: str, out: Path, *, to_the_end: bool) -> Any:
    """Start the query into Parquet: a micro-batch per second, or up to the present end. `where`: a journal, or a
    URL."""
    if source == "journal":
        stream = spark.readStream.format("leveret_journal").option("reader", "live").load(where)
    else:
        stream = spark.readStream.format("amqp").option("url", where).option("queue", QUEUE).load()
    writer = stream.writeStream.format("parquet").option("path", str(out / "sink"))
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    how: dict[str, Any] = {"availableNow": True} if to_the_end else {"processingTime": "1 second"}
    return writer.trigger(**how).start()


def summary(spark: Any, source: str, out: Path) -> dict[str, Any]:
    """The contents of the sink."""
    sink = spark.read.parquet(str(out / "sink"))
    if source == "amqp":
        counts = sink.selectExpr("count(*) AS rows", "count(DISTINCT offset) AS distinct", "max(offset) + 1 AS end")
        return dict(counts.first().asDict())
    by_kind = {row["kind"]: row["count"] for row in sink.groupBy("kind").count().collect()}
    persistent = sink.where("kind = 'published' AND msg_id > 0").join(
        sink.where(f"kind = 'enqueued' AND queue = '{QUEUE}' AND (flags & 1) <> 0").select("msg_id"),
        "msg_id",
        "left_semi",
    )
    starts = [row["lsn"] for row in sink.where(BROKER_STARTS).select("lsn").collect()]
    life = " + ".join(["0", *(f"IF(lsn > {lsn}, 1, 0)" for lsn in starts)])
    lives = persistent.selectExpr(f"{life} AS life").groupBy("life").count().orderBy("life").collect()
    of_queue = sink.where(f"queue = '{QUEUE}' AND msg_id > 0").groupBy("kind").count().collect()
    return {
        "rows": sink.count(),
        "distinct": sink.select("lsn", "msg_id", "kind", "queue").distinct().count(),
        "by_kind": dict(sorted(by_kind.items())),
        "of_queue": {row["kind"]: row["count"] for row in of_queue},
        "published": [row["count"] for row in lives],
    }


def in_the_journal(journal: Path) -> dict[str, int]:
    """Rows by kind, read without Spark."""
    from leveret.pipeline.reading.table_reader import TableReader
    from leveret.pipeline.schemas import EVENTS

    kind = tuple(column for column in EVENTS if column.name == "kind")
    found: Counter[str] = Counter()
    for batch in TableReader(str(journal), columns=kind).all_batches():
        found.update({row["values"]: row["counts"] for row in batch.column(0).value_counts().to_pylist()})
    return dict(sorted(found.items()))


def query(source: str, where: str, out: Path, *, to_the_end: bool, quick: bool) -> None:
    """The query's process. `quick`: Java starts faster and computes more slowly."""
    from leveret.pipeline.session import SessionOptions, open_session

    spark = open_session(SessionOptions("local[2]", driver_memory="1g", is_test=quick), scratch=out / "scratch")
    retry_slow_workers(
        lambda: start(spark, source, where, out, to_the_end=to_the_end).awaitTermination(), Progress("live")
    )
    if to_the_end:
        print(json.dumps(summary(spark, source, out)))
    spark.stop()


def commits(out: Path) -> int:
    """Micro-batches that are done."""
    return len(list((out / "checkpoint" / "commits").glob("[0-9]*")))


def kill_all(process: subprocess.Popen[Any]) -> None:
    """Kill the query with its Java and its Python workers, which are in its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def disturb(
    peer: Peer, command: list[str], out: Path, kills: int, broker_kills: int, pause_max_seconds: float
) -> list[int]:
    """Start the query and kill it again and again, sometimes also the broker. Returns the batches of each run."""
    batches = []
    for number in range(kills):
        with (out / "query.log").open("ab") as log:
            running = subprocess.Popen(command, start_new_session=True, stderr=log)
        try:
            before = commits(out)
            while commits(out) <= before:  # until it has started to work
                if running.poll() is not None:
                    raise SystemExit(f"the query ended: see {out}/query.log")
                time.sleep(0.05)
            if number < broker_kills:
                peer.restart(kill=True)
                before = commits(out)
                while commits(out) <= before:  # until it continues
                    if running.poll() is not None:
                        raise SystemExit(f"the query ended with the broker: see {out}/query.log")
                    time.sleep(0.05)
            time.sleep(random.uniform(0, pause_max_seconds))
        finally:
            kill_all(running)
        batches.append(commits(out) - before)
    return batches


def end_of(peer: Peer) -> None:
    """Stop the broker with SIGTERM, so that the last block is sealed."""
    assert peer.processes is not None
    peer.processes.process.terminate()
    while not peer.processes.has_ended():
        time.sleep(0.05)


def counters(peer: Peer) -> dict[str, int]:
    """The queue's own, by kind of row."""
    asked = subprocess.run([*LEVERET, "ctl", "--url", peer.url, "--json", "queues"], check=True, capture_output=True)
    (queue,) = [one for one in json.loads(asked.stdout) if one["name"] == QUEUE]
    return {kind: queue["counters"][name] for name, kind in KINDS.items() if queue["counters"].get(name)}


def faults(source: str, found: dict[str, Any], sent: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Differences, as sentences."""
    wrong = []
    if found["rows"] != found["distinct"]:
        wrong.append(f"{found['rows'] - found['distinct']} rows are there twice")
    if source == "amqp":
        if not found["rows"] == found["end"] == sent["sent"]:
            wrong.append(f"{found['rows']} rows up to offset {found['end']} of {sent['sent']} messages, all confirmed")
        return wrong
    if found["by_kind"] != expected["journal"]:
        wrong.append("the sink and the journal differ")
    for kind, count in expected.get("counters", {}).items():
        if found["of_queue"].get(kind) != count:
            wrong.append(f"the broker counted {count} {kind}, the sink has {found['of_queue'].get(kind)}")
    counts = [one for one in sent["connections"] if one["sent"]]
    if len(found["published"]) != len(counts):
        wrong.append(f"{len(counts)} connections published, the sink has {len(found['published'])} lives of brokers")
    for one, rows in zip(counts, found["published"], strict=False):
        if not one["confirmed"] <= rows <= one["sent"]:
            wrong.append(f"{rows} rows of a connection that sent {one['sent']}, {one['confirmed']} confirmed")
    return wrong


def run(
    out: Path,
    *,
    rate: int,
    kills: int,
    broker_kills: int,
    source: str,
    peer_name: str,
    spark: Any = None,
    quick: bool = False,
) -> int:
    """Prints the result; returns 1 if there is a difference. `quick`: for a test, which has a Spark session already."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "leveret.toml").write_text(CONFIGURATION)
    end = out / "end"
    started: AbstractContextManager[Peer]
    started = rabbitmq() if peer_name == "rabbitmq" else durable_leveret("--config", str(out / "leveret.toml"))
    with started as peer:
        where = peer.url if source == "amqp" else str(peer.directory / "data")
        me = [sys.executable, __file__, str(out), "--source", source, "--where", where, *["--quick"] * quick, "--query"]
        arguments = [str(peer.port), "--rate", str(rate), "--until", str(end), "--queue", QUEUE]
        arguments += ["--stream"] if source == "amqp" else []
        load = subprocess.Popen([sys.executable, str(TRAFFIC), *arguments], stdout=-1, text=True)
        try:
            batches = disturb(peer, [*me, "forever"], out, kills, broker_kills, 0.5 if quick else 3.0)
            end.touch()
            output, _ = load.communicate()
        finally:
            load.kill()
            load.wait()
        if load.returncode:
            raise SystemExit("the publisher ended")
        sent = json.loads(output)
        expected: dict[str, Any] = {}
        if source == "journal" and not broker_kills:
            expected["counters"] = counters(peer)
        if source == "journal":
            end_of(peer)
            expected["journal"] = in_the_journal(Path(where))
        if spark is None:
            last = subprocess.run([*me, "to-the-end"], check=True, capture_output=True, text=True)
            found = json.loads(last.stdout.splitlines()[-1])
        else:
            retry_slow_workers(
                lambda: start(spark, source, where, out, to_the_end=True).awaitTermination(), Progress("live")
            )
            found = summary(spark, source, out)
    wrong = faults(source, found, sent, expected)
    result = {"source": source, "broker": peer_name, "batches_before_each_kill": batches, "broker_kills": broker_kills}
    print(
        json.dumps({**result, **sent, "sink": found, **expected, "faults": wrong, "load_average": os.getloadavg()[0]})
    )
    return 1 if wrong else 0


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=lambda text: Path(text).absolute())
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--broker-kills", type=int, default=0)
    parser.add_argument("--source", choices=("journal", "amqp"), default="journal")
    parser.add_argument("--peer", choices=("leveret", "rabbitmq"), default="leveret")
    parser.add_argument("--where", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--query", choices=("forever", "to-the-end"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.query:
        query(
            options.source,
            options.where,
            options.directory,
            to_the_end=options.query == "to-the-end",
            quick=options.quick,
        )
        return
    if options.peer == "rabbitmq" and options.source != "amqp" or options.source == "amqp" and options.broker_kills:
        parser.error("a journal is Leveret's; a stream of Leveret does not outlive its broker")
    counts = {"rate": options.rate, "kills": options.kills, "broker_kills": options.broker_kills}
    sys.exit(run(options.directory, **counts, source=options.source, peer_name=options.peer))


if __name__ == "__main__":
    main()
