"""A streaming query over the journal of a living broker, killed again and again: every row once, none missing.

    python benchmarks/pipeline_live.py DIR --rate 5000 --kills 4

A broker with `scope = "all"` in a process of its own, a publisher and a consumer at RATE messages a second beside it,
and a streaming query in a third process that gets SIGKILL while it is at work and is started anew on its checkpoint. At
the end the rows of the sink by kind are compared with the queue's own counters.
"""

import argparse
import asyncio
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aio_pika

CONFIGURATION = '[journal]\nscope = "all"\nsegment-size = "16MiB"\nretain = "1h"\n'
#: Counter of a queue -> kind of row.
KINDS = {
    "enqueued": "enqueued",
    "delivered": "delivered",
    "acknowledged": "acked",
    "requeued": "requeued",
}
LEVERET = [sys.executable, "-m", "leveret"]


def query(journal: Path, out: Path, *, to_the_end: bool) -> None:
    """The query's process: into Parquet, a micro-batch a second, or what is there and no more."""
    from leveret.pipeline.session import SessionOptions, open_session

    spark = open_session(SessionOptions("local[2]", driver_memory="1g"), scratch=out / "scratch")
    stream = spark.readStream.format("leveret_journal").option("reader", "live").load(str(journal))
    writer = stream.writeStream.format("parquet").option("path", str(out / "sink"))
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    how: dict[str, Any] = {"availableNow": True} if to_the_end else {"processingTime": "1 second"}
    writer.trigger(**how).start().awaitTermination()
    if to_the_end:
        sink = spark.read.parquet(str(out / "sink"))
        mine = sink.where("queue = 'live' AND msg_id > 0")
        by_kind = {row["kind"]: row["count"] for row in mine.groupBy("kind").count().collect()}
        distinct = sink.select("lsn", "msg_id").distinct().count()
        print(json.dumps({"by_kind": by_kind, "rows": sink.count(), "distinct": distinct}))
    spark.stop()


async def traffic(url: str, rate: int, end: Path) -> dict[str, float]:
    """Publish in runs of a fiftieth of a second until there is a file `end`; consume, reject one in two hundred once.
    Returns how many, and in what time."""
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=2000)
        queue = await channel.declare_queue("live", durable=True)
        settled = 0

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            nonlocal settled
            if not message.redelivered and random.random() < 0.005:
                await message.reject(requeue=True)
            else:
                await message.ack()
                settled += 1

        await queue.consume(take)
        began, sent = time.monotonic(), 0
        while not end.exists():
            passed = time.monotonic() - began
            for _ in range(int(passed * rate) - sent):
                mode = aio_pika.DeliveryMode(1 + sent % 2)
                body = aio_pika.Message(b"x" * 100, delivery_mode=mode)
                await channel.default_exchange.publish(body, "live")
                sent += 1
            await asyncio.sleep(0.02)
        published = time.monotonic() - began
        while settled < sent:
            await asyncio.sleep(0.1)
        return {"sent": sent, "rate": round(sent / published), "seconds": round(published, 1)}


def commits(directory: Path) -> list[str]:
    """The micro-batches that are in the sink."""
    return [path.name for path in (directory / "checkpoint" / "commits").glob("[0-9]*")]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--query", choices=("forever", "to-the-end"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    directory: Path = options.directory
    journal = directory / "data"
    if options.query:
        query(journal, directory, to_the_end=options.query == "to-the-end")
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "leveret.toml").write_text(CONFIGURATION)
    serve = [*LEVERET, "serve", "--config", str(directory / "leveret.toml"), "--data", str(journal)]
    broker = subprocess.Popen([*serve, "--listen", "127.0.0.1:0", "--log-level", "warning"], stdout=-1, text=True)
    assert broker.stdout is not None
    ready = re.search(r":(\d+)/", broker.stdout.readline())
    assert ready is not None
    url = f"amqp://guest:guest@127.0.0.1:{ready[1]}/"
    me = [sys.executable, __file__, str(directory), "--query"]
    program = (
        "import asyncio, json, pathlib, sys; sys.path.insert(0, sys.argv[1]); import pipeline_live as p;"
        "print(json.dumps(asyncio.run(p.traffic(sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4])))))"
    )
    end = directory / "end"
    arguments = [str(Path(__file__).parent), url, str(options.rate), str(end)]
    load = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=-1, text=True)
    batches = []
    for _ in range(options.kills):
        running = subprocess.Popen([*me, "forever"], start_new_session=True, stderr=subprocess.DEVNULL)
        before = len(commits(directory))
        while len(commits(directory)) <= before:  # it has come to work
            time.sleep(0.05)
        time.sleep(random.uniform(0, 3))
        subprocess.run(["kill", "-9", "--", f"-{running.pid}"], check=False)  # its Java and Python workers, too
        running.wait()
        batches.append(len(commits(directory)) - before)
    end.touch()
    said, _ = load.communicate()
    sent = json.loads(said)
    asked = subprocess.run([*LEVERET, "ctl", "--url", url, "--json", "queues"], check=True, capture_output=True)
    (queue,) = [one for one in json.loads(asked.stdout) if one["name"] == "live"]
    broker.send_signal(signal.SIGTERM)
    broker.wait()
    last = subprocess.run([*me, "to-the-end"], check=True, capture_output=True, text=True)
    found = json.loads(last.stdout.splitlines()[-1])
    expected = {kind: queue["counters"][name] for name, kind in KINDS.items() if queue["counters"].get(name)}
    agrees = (
        expected == found["by_kind"] and found["rows"] == found["distinct"] and sent["sent"] == expected["enqueued"]
    )
    result = {**sent, "batches_before_each_kill": batches, "query": found, "broker": expected, "agrees": agrees}
    print(json.dumps(result))
    raise SystemExit(0 if agrees else 1)


if __name__ == "__main__":
    main()
