"""The queries of RabbitMQ's own dashboards at a real Prometheus that scrapes a real broker under load.

`make dashboards`, or `python tests/console/prometheus_check.py [--follower] [FILE]...`: prints what gave data, by
dashboard; exit 1 where a query gave none, or promtool has something to say. `--follower`: three nodes of a cluster are
scraped, and the load is on one that does not lead.
FILE: a dashboard as Grafana exports it (RabbitMQ's: numbers 10991 and later), or a list of objects with `dashboard`,
`panel` and `expr`. Without one: each series that RabbitMQ's dashboards need, joined as there, and our own dashboard.
Needs Debian's package prometheus. Takes some 25 s, nearly all of it waiting for scrapes.
"""

import json
import re
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika

from leveret.interop.brokers.follower import leveret_follower
from leveret.testing import start_broker

SERIES = Path(__file__).parents[1] / "spec" / "management" / "dashboard-series.txt"
JOINED = (
    "sum({series} * on(instance, job) group_left(rabbitmq_cluster) "
    'rabbitmq_identity_info{{rabbitmq_cluster="$rabbitmq_cluster", namespace="$namespace"}})'
)
OURS = Path(__file__).parents[2] / "console" / "dashboards" / "leveret.json"
#: What Grafana puts in place of its variables.
VARIABLES = {
    "$__rate_interval": "20s",
    "$__range": "20s",
    "$namespace": "",
    "$endpoint": "aggregated",
    "$instance": ".*",
}
CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: leveret, static_configs: [{{targets: {targets}}}]}}]
"""
SCRAPES_S = 20.0
FOLLOWER = "--follower"


def queries(files: list[str], *, is_cluster: bool = False) -> list[tuple[str, str, str]]:
    """(dashboard, panel, query)."""
    found = [one for file in files or (str(OURS),) for one in _queries_of(Path(file), is_cluster)]
    if not files:
        for line in SERIES.read_text(encoding="utf-8").splitlines():
            version, series = line.split(" ")
            found.append((f"series of RabbitMQ {version}", series, JOINED.format(series=series)))
    return found


def _queries_of(file: Path, is_cluster: bool) -> list[tuple[str, str, str]]:
    document = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(document, list):
        return [(one["dashboard"], one["panel"], one["expr"]) for one in document]
    return [
        (document["title"], panel["title"], target["expr"])
        for panel in document["panels"]
        for target in panel.get("targets", ())
        if is_cluster or "leveret_cluster_" not in target["expr"]
    ]


def filled_in(query: str, cluster: str) -> str:
    """A query without variables; rates are taken over what was scraped in so short a time."""
    for name, value in (VARIABLES | {"$rabbitmq_cluster": cluster}).items():
        query = query.replace(name, value)
    return re.sub(r"\[60s\]", "[20s]", query)


def load(url: str, stopping: threading.Event) -> None:
    """Publishes of every kind, consumers and gets with and without acknowledgements, and what comes back."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    plain, confirmed = connection.channel(), connection.channel()
    confirmed.confirm_delivery()
    consuming = connection.channel()
    for queue in ("manual", "auto", "polled"):
        plain.queue_declare(queue)
    plain.queue_declare("ring", arguments={"x-ring-size": 2})
    plain.queue_declare("durable", durable=True)
    consuming.basic_consume("manual", lambda channel, how, *_: channel.basic_ack(how.delivery_tag))
    consuming.basic_consume("auto", lambda *_: None, auto_ack=True)
    number = 0
    while not stopping.is_set():
        number += 1
        for queue in ("manual", "auto", "polled", "polled", "ring"):
            plain.basic_publish("", queue, b"x" * (10 ** (number % 5)))
        plain.basic_publish("", "nowhere", b"x")
        confirmed.basic_publish("", "auto", b"x")
        confirmed.basic_publish("", "durable", b"x", pika.BasicProperties(delivery_mode=2))
        try:
            confirmed.basic_publish("", "nowhere", b"x", mandatory=True)
        except pika.exceptions.UnroutableError:
            pass
        plain.basic_get("polled", auto_ack=True)
        plain.basic_get("auto")
        how, _, _ = plain.basic_get("polled")
        if how is not None:
            plain.basic_reject(how.delivery_tag, requeue=bool(number % 2))
        plain.queue_declare(f"short-{number}")
        plain.queue_delete(f"short-{number}")
        other = pika.BlockingConnection(pika.URLParameters(url))
        other.channel()
        other.close()
        connection.process_data_events(0.05)
    connection.close()


def asked(port: int, path: str, **parameters: str) -> Any:
    """An answer of Prometheus' own API."""
    url = f"http://127.0.0.1:{port}{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def results(
    url: str, targets: list[str], port: int, folder: str, asked_for: list[tuple[str, str, str]]
) -> list[tuple[str, str, bool]]:
    """(dashboard, panel, whether there was data) of each query."""
    configuration = Path(folder, "prometheus.yml")
    configuration.write_text(CONFIGURATION.format(targets=json.dumps(targets)), encoding="utf-8")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )
    stopping = threading.Event()
    thread = threading.Thread(target=load, args=(url, stopping))
    thread.start()
    try:
        stopping.wait(SCRAPES_S)  # the load goes on meanwhile
        health = asked(port, "/api/v1/targets")["data"]["activeTargets"]
        assert [one["health"] for one in health] == ["up"] * len(targets), health
        known = asked(port, "/api/v1/query", query="rabbitmq_identity_info")["data"]["result"]
        (cluster,) = {one["metric"]["rabbitmq_cluster"] for one in known}
        found = []
        for dashboard, panel, query in asked_for:
            answer = asked(port, "/api/v1/query", query=filled_in(query, cluster))
            values = [float(one["value"][1]) for one in answer["data"]["result"]]
            found.append((dashboard, panel, any(value == value for value in values)))
        return found
    finally:
        stopping.set()
        thread.join()
        process.terminate()
        process.wait()


def remarks(target: str) -> str:
    """What `promtool check metrics` says of a node's metrics."""
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    return (done.stdout + done.stderr).strip()


def main() -> int:
    """Print a table. Returns the exit code."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    files = [argument for argument in sys.argv[1:] if argument != FOLLOWER]
    is_cluster = FOLLOWER in sys.argv[1:]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if is_cluster:
            peer = stack.enter_context(leveret_follower())
            url, targets = peer.url, [f"127.0.0.1:{one}" for one in peer.metrics_ports]
        else:
            broker = stack.enter_context(start_broker(management=True, data=f"{folder}/journal"))
            url, targets = broker.url, [urlsplit(broker.metrics_url).netloc]
        found = results(url, targets, port, folder, queries(files, is_cluster=is_cluster))
        said = [text for target in targets if (text := remarks(target))]
    for dashboard in dict.fromkeys(one[0] for one in found):
        rows = [one for one in found if one[0] == dashboard]
        print(f"{dashboard}: {sum(one[2] for one in rows)} of {len(rows)} queries give data")
    empty = [f"{dashboard}: {panel}" for dashboard, panel, has_data in found if not has_data]
    print("\n".join([*(f"no data: {one}" for one in empty), *said]))
    return int(bool(empty or said))


if __name__ == "__main__":
    sys.exit(main())
