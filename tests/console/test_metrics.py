"""Metrics for Prometheus, and health for orchestrators. Source: management page 12, 20."""

import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pytest
from api_client import ApiClient

from leveret.console.cluster import ClusterFacts
from leveret.console.http_messages import Peer, Refusal, Request
from leveret.console.login import Logins
from leveret.console.metrics import families
from leveret.console.metrics.buckets import Buckets
from leveret.console.metrics.cluster import cluster_page
from leveret.console.metrics.exposition import Family, escaped, histogram
from leveret.console.metrics.facts import MetricsFacts, ProcessFigures
from leveret.console.metrics.requests import Metrics
from leveret.console.options import ConsoleOptions
from leveret.operator.steps import finished
from leveret.serving.console import console_options
from leveret.testing import RunningBroker, start_broker

SAMPLE = re.compile(r'([a-z_:0-9]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
SPEC = Path(__file__).parents[1] / "spec" / "management"
HOSTILE = ['a"b', "back\\slash", "br}ace,x=1", "<b>", "ünïcode 🐇", "nul\0octet", " "]

Answer = tuple[int, dict[str, str], str]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(management=True) as running:
        yield running


@pytest.fixture
def fresh() -> Iterator[RunningBroker]:
    with start_broker(management=True) as running:
        yield running


def ask(broker: RunningBroker, path: str = "/metrics", method: str = "GET", **headers: str) -> Answer:
    """What the metrics' port answers."""
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(broker.metrics_url).port or 0, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
    finally:
        connection.close()


def samples_of(text: str) -> dict[str, float]:
    """Every sample by its name and labels; each belongs to the family that was declared last, and is there once."""
    found: dict[str, float] = {}
    family = kind = ""
    declared: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in declared, f"{family} is declared twice"
            declared.add(family)
            assert (kind == "counter") == family.endswith("_total"), family
        elif not line.startswith(f"# HELP {family} "):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            name, labels, value = match.groups()
            suffixes = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
            assert name in {family + suffix for suffix in suffixes}, line
            key = name if labels is None else f"{name}{{{labels}}}"
            assert key not in found, line
            found[key] = float(value)
    return found


def metrics_of(broker: RunningBroker, path: str = "/metrics") -> dict[str, float]:
    status, headers, text = ask(broker, path)
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return samples_of(text)


def test_an_idle_broker_has_all_families(broker: RunningBroker) -> None:
    """Dashboards begin at zero: a missing family would leave a panel empty."""
    text = ask(broker)[2]
    samples_of(text)
    groups = [group for group in vars(families).values() if isinstance(group, tuple)]
    wanted = [family for group in groups for family in group if isinstance(family, Family)]
    assert len(wanted) > 100
    for family in wanted:
        assert f"# TYPE rabbitmq_{family.name} {family.kind}\n" in text


def test_an_idle_broker_has_what_dashboards_ask_for(broker: RunningBroker) -> None:
    """Each series of RabbitMQ's own dashboards has a sample (all of them at a real Prometheus: `make dashboards`)."""
    lines = (SPEC / "dashboard-series.txt").read_text(encoding="utf-8").split("\n")
    wanted = {line.split(" ")[1] for line in lines if line}
    assert len(wanted) > 40
    assert wanted <= {name.partition("{")[0] for name in metrics_of(broker)}


def test_our_dashboard_asks_for_what_there_is(tmp_path: Path) -> None:
    """Every series in it exists; panels do not overlap, and have numbers of their own."""
    document = json.loads((files("leveret.console") / "dashboards" / "leveret.json").read_text(encoding="utf-8"))
    with start_broker(management=True, data=tmp_path) as broker:
        page = ask(broker)[2] + cluster_page(ClusterFacts("rabbit@a", None, (), 2))
    there = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    panels = document["panels"]
    text = " ".join(target["expr"] for panel in panels for target in panel["targets"])
    series = {name.removesuffix("_bucket") for name in re.findall(r"\b(?:leveret|rabbitmq|process)_[a-z_]+", text)}
    assert series <= there
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24


def test_names_and_types_are_those_of_rabbitmq() -> None:
    """What was scraped from RabbitMQ 3.10.8 has the same families, but for what only Erlang has."""
    page = SPEC / "metrics-families.txt"
    theirs = dict(line.split(" ") for line in page.read_text(encoding="utf-8").splitlines() if line)
    groups = [group for group in vars(families).values() if isinstance(group, tuple)]
    ours = {one.name: one.kind for group in groups for one in group if isinstance(one, Family)}
    left_out = {name for name in theirs if name not in ours}
    for prefix in ("raft_", "global_stream_error_", "erlang_", "telemetry_", "stream_"):
        left_out -= {name for name in left_out if name.startswith(prefix)}
    left_out -= {name for name in left_out if name.endswith("_process_reductions_total")}
    assert not left_out
    assert {name: theirs[name] for name in ours if name in theirs} == {
        name: kind for name, kind in ours.items() if name in theirs
    }


def test_what_clients_do_is_counted(fresh: RunningBroker) -> None:
    """Publishes, confirms, returns, deliveries by their sorts; and no counter falls when a connection closes."""
    connection = pika.BlockingConnection(pika.URLParameters(fresh.url))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "quorum"})
    for queue in ("q", "q", "q", "s"):
        channel.basic_publish("", queue, b"12345")
    channel.basic_get("q", auto_ack=True)
    tag = channel.basic_get("q")[0].delivery_tag
    channel.basic_get("q", auto_ack=True)
    channel.basic_get("q", auto_ack=True)
    channel.basic_nack(tag, requeue=True)
    channel.basic_ack(channel.basic_get("q")[0].delivery_tag)
    channel.basic_get("s")
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"1")
    channel.basic_publish("", "nowhere", b"1")
    found = metrics_of(fresh)
    classic = '{protocol="amqp091",queue_type="rabbit_classic_queue"}'
    quorum = '{protocol="amqp091",queue_type="rabbit_quorum_queue"}'
    expected = {
        'global_messages_received_total{protocol="amqp091"}': 6,
        'global_messages_received_confirm_total{protocol="amqp091"}': 2,
        'global_publishers{protocol="amqp091"}': 1,
        'global_messages_confirmed_total{protocol="amqp091"}': 2,
        'global_messages_routed_total{protocol="amqp091"}': 5,
        'global_messages_unroutable_dropped_total{protocol="amqp091"}': 1,
        'global_messages_unroutable_returned_total{protocol="amqp091"}': 0,
        'global_messages_routed_total{protocol="stream"}': 0,
        f"global_messages_delivered_total{classic}": 4,
        f"global_messages_delivered_get_auto_ack_total{classic}": 2,
        f"global_messages_delivered_get_manual_ack_total{classic}": 2,
        f"global_messages_get_empty_total{classic}": 1,
        f"global_messages_redelivered_total{classic}": 1,
        f"global_messages_acknowledged_total{classic}": 1,
        f"global_messages_delivered_get_manual_ack_total{quorum}": 1,
        "queue_messages": 2,
        "queue_messages_unacked": 1,
        "queue_messages_ready_bytes": 1,
        "queue_messages_unacked_bytes": 5,
        "queues": 2,
        "connections": 1,
        "channels": 1,
        "queues_declared_total": 2,
        'auth_attempts_succeeded_total{protocol="amqp091"}': 1,
    }
    assert {name: found["rabbitmq_" + name] for name in expected} == expected
    assert found["rabbitmq_connection_incoming_bytes_total"] > 100
    by_channel = metrics_of(fresh, "/metrics/per-object")
    assert sum(by_channel[name] for name in by_channel if "channel_messages_published_total{" in name) == 6
    assert sum(by_channel[name] for name in by_channel if "channel_get_ack_total{" in name) == 3
    channel.queue_delete("s")
    connection.close()
    later = metrics_of(fresh)
    fallen = {name for name in found if "_total" in name and later[name] < found[name]}
    assert not fallen
    assert later['rabbitmq_global_messages_confirmed_total{protocol="amqp091"}'] == 2
    assert later[f"rabbitmq_global_messages_delivered_get_manual_ack_total{quorum}"] == 1
    assert (later["rabbitmq_connections"], later["rabbitmq_connections_closed_total"]) == (0, 1)


def test_sizes_of_messages_from_the_first_scrape_on(fresh: RunningBroker) -> None:
    """Nobody pays for it before; alike in runs, mixed runs and transactions."""

    def sizes() -> dict[str, float]:
        found = metrics_of(fresh)
        labels = '{protocol="amqp091",le="%s"}'
        upper = {bound: found["rabbitmq_message_size_bytes_bucket" + labels % bound] for bound in ("100.0", "1000.0")}
        return {**upper, "sum": found['rabbitmq_message_size_bytes_sum{protocol="amqp091"}']}

    with pika.BlockingConnection(pika.URLParameters(fresh.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"1")
        assert channel.queue_declare("q", passive=True).method.message_count == 1
        assert sizes() == {"100.0": 0, "1000.0": 0, "sum": 0}
        for size in (100, 100, 101, 5):
            channel.basic_publish("", "q", b"x" * size)
        other = connection.channel()
        other.tx_select()
        other.basic_publish("", "q", b"x" * 1000)
        other.tx_commit()
        assert channel.queue_declare("q", passive=True).method.message_count == 6
        assert sizes() == {"100.0": 3, "1000.0": 5, "sum": 1306}


def test_dead_letters_by_reason(fresh: RunningBroker) -> None:
    """With a target they went on, without one they are gone; what the broker publishes is no publish of a client."""
    with pika.BlockingConnection(pika.URLParameters(fresh.url)) as connection:
        channel = connection.channel()
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("dead", arguments={"x-max-length": 1})
        channel.queue_declare("q", arguments=arguments)
        for _ in range(2):
            channel.basic_publish("", "q", b"1")
            channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
        found = metrics_of(fresh)
    kind = 'queue_type="rabbit_classic_queue"'
    rejected, maxlen = (f"rabbitmq_global_messages_dead_lettered_{one}_total" for one in ("rejected", "maxlen"))
    assert found[f'{rejected}{{{kind},dead_letter_strategy="at_most_once"}}'] == 2
    assert found[f'{maxlen}{{{kind},dead_letter_strategy="disabled"}}'] == 1
    assert found['leveret_dead_lettered_total{reason="rejected"}'] == 2
    assert found['leveret_died_total{reason="maxlen"}'] == 1
    assert found['rabbitmq_global_messages_received_total{protocol="amqp091"}'] == 2


def test_objects_have_hostile_names(fresh: RunningBroker) -> None:
    """A name ends neither its label nor its line; each queue has each family once."""
    vhost = fresh.vhost("/")
    for name in HOSTILE:
        fresh.ask(lambda name=name: fresh.runtime.broker.virtual_hosts[vhost.name].queues.declare(name, client=None))
    text = ask(fresh, "/metrics/per-object")[2]
    found = samples_of(text)
    ready = [name for name in found if name.startswith("rabbitmq_queue_messages_ready{")]
    assert len(ready) == len(HOSTILE)
    assert "\0" not in text


def test_only_what_is_asked_for(fresh: RunningBroker) -> None:
    """Families and virtual hosts; unknown words are passed over, a filter of unknown ones only leaves nothing."""
    fresh.ask(lambda: fresh.runtime.broker.virtual_hosts.create("other").queues.declare("b", client=None))
    fresh.ask(lambda: fresh.runtime.broker.virtual_hosts["/"].queues.declare("a", client=None))

    def names(query: str) -> set[str]:
        found = metrics_of(fresh, f"/metrics/detailed{query}")
        return {name for name in found if "_info{" not in name}

    both = {
        f'rabbitmq_detailed_queue_messages{what}{{vhost="{vhost}",queue="{queue}"}}'
        for what in ("", "_ready", "_unacked")
        for vhost, queue in (("/", "a"), ("other", "b"))
    }
    coarse = "?family=queue_coarse_metrics"
    assert names(coarse) == both
    assert names(f"{coarse}&vhost=other&vhost=nope") == {name for name in both if "other" in name}
    assert names(f"{coarse}&vhost=nope") == set()
    assert names("") == names("?family=nope") == set()
    assert names("?family=vhost_status&family=queue_consumer_count&vhost=%2F") == {
        'rabbitmq_cluster_vhost_status{vhost="/"}',
        'rabbitmq_detailed_queue_consumers{vhost="/",queue="a"}',
    }
    exchanges = names("?family=exchange_names&family=exchange_bindings&vhost=%2F")
    assert 'rabbitmq_cluster_exchange_name{vhost="/",exchange="amq.topic",type="topic"}' in exchanges
    every = "".join(
        f"&family={one}"
        for one in ("queue_metrics", "channel_metrics", "channel_exchange_metrics", "channel_queue_metrics")
    )
    assert len(names(f"?family=node_metrics&family=connection_coarse_metrics{every}")) > 40


def test_addresses_without_metrics() -> None:
    """Their queues have no lines of their own; the sums know them."""
    setting = {"match": "secret.#", "enable-metrics": False}
    with start_broker(management=True, config={"address-setting": [setting]}) as broker:
        for name in ("secret.a", "b"):
            broker.ask(lambda name=name: broker.runtime.broker.virtual_hosts["/"].queues.declare(name, client=None))
        for path in ("per-object", "detailed?family=queue_metrics", "detailed?family=queue_coarse_metrics"):
            found = metrics_of(broker, f"/metrics/{path}")
            assert {re.search('queue="([^"]*)"', one)[1] for one in found if 'queue="' in one} == {"b"}, path
        assert metrics_of(broker)["rabbitmq_queues"] == 2


@pytest.mark.parametrize(
    "path, method, status",
    [
        ("/", "GET", 404),
        ("/api/overview", "GET", 404),
        ("/metrics/nope", "GET", 404),
        ("/metrics/%2e%2e/api", "GET", 404),
        ("/metrics/", "GET", 200),
        ("/metrics", "HEAD", 200),
        ("/metrics", "POST", 405),
        ("/health/live", "DELETE", 405),
        ("/metrics/detailed?" + "family=x&" * 200 + "family=x", "GET", 400),
        ("/metrics/detailed?" + "family=x&" * 199 + "family=x", "GET", 200),
    ],
)
def test_requests(broker: RunningBroker, path: str, method: str, status: int) -> None:
    """The API is not there; nothing is changed there."""
    assert ask(broker, path, method)[0] == status


def test_names_that_point_here_from_elsewhere_are_refused(broker: RunningBroker) -> None:
    """A page of a stranger must not read metrics by a name of its own (DNS rebinding)."""
    assert ask(broker, Host="evil.example")[0] == 421


def test_the_console_has_them_behind_a_login(broker: RunningBroker) -> None:
    """The same pages; health needs no login there either."""
    port = urlsplit(broker.management_url).port or 0
    for path, user, status in (
        ("/metrics", None, 401),
        ("/metrics", "Z3Vlc3Q6Z3Vlc3Q=", 200),
        ("/metrics/per-object", "Z3Vlc3Q6d3Jvbmc=", 401),
        ("/health/ready", None, 200),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path, headers={} if user is None else {"authorization": f"Basic {user}"})
        assert connection.getresponse().status == status
        connection.close()


def test_names_are_for_monitors_outside_loopback(broker: RunningBroker) -> None:
    """Sums are for everybody; names need a login, unless the operator says otherwise. Source: management page 20."""
    metrics, is_open = metrics_asked_from_elsewhere(broker)
    for path, header, status in (
        ("/metrics", None, 200),
        ("/metrics/per-object", None, 401),
        ("/metrics/detailed", None, 401),
        ("/metrics/detailed", "Basic Z3Vlc3Q6Z3Vlc3Q=", 401),  # guest is for loopback only
        ("/health/ready", None, 200),
    ):
        headers = {} if header is None else {"authorization": header}
        request = Request("GET", path, {}, headers, Peer("192.0.2.1", False))
        assert answered(metrics, request) == status, path
    is_open.append(True)
    assert answered(metrics, Request("GET", "/metrics/per-object", {}, {}, Peer("192.0.2.1", False))) == 200


def test_sums_name_nothing_outside_loopback() -> None:
    """They had a limit's address, and who waits for it."""
    limit = {"match": "secret", "max-size-messages": 1, "address-full-policy": "BLOCK"}
    with start_broker(management=True, config={"address-setting": [limit]}) as broker:
        metrics, is_open = metrics_asked_from_elsewhere(broker)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("secret")
            for _ in range(3):
                channel.basic_publish("", "secret", b"x")
            connection.channel()  # the broker has read all before

            def page(peer: Peer) -> str:
                answer = finished(metrics.open(Request("GET", "/metrics", {}, {}, peer)).steps(b""))
                return b"".join(answer.body).decode()

            here, elsewhere = page(Peer("127.0.0.1", True)), page(Peer("192.0.2.1", False))
            assert "secret" in here and 'leveret_blocked_producers{vhost="/",' in here
            assert "secret" not in elsewhere and 'leveret_blocked_producers{why="max-size-messages"} 1\n' in elsewhere
            is_open.append(True)
            assert "secret" in page(Peer("192.0.2.1", False))


def metrics_asked_from_elsewhere(broker: RunningBroker) -> tuple[Metrics, list[bool]]:
    """What answers, and whether names are open (once something is in the list)."""
    is_open: list[bool] = []
    figures = ProcessFigures(1, 1, 1, 1, 1, 1, 1.0, 1, 1)
    facts = MetricsFacts(lambda: figures, lambda: None, Buckets((1.0,)), lambda: bool(is_open))
    runtime = broker.runtime

    def options() -> ConsoleOptions:
        return console_options(runtime._built.control, runtime.configuration, 0, None, list)

    logins = Logins(lambda: runtime.broker)

    def log_in(request: Request) -> None:
        logins.log_in(request.headers.get("authorization"), request.peer)

    return Metrics(lambda: runtime.broker, options, facts, log_in), is_open


def answered(metrics: Metrics, request: Request) -> int:
    """The status."""
    try:
        metrics.open(request)
    except Refusal as refusal:
        return refusal.status
    return 200


def test_packed(broker: RunningBroker) -> None:
    """Once, also where the server would pack it as well."""
    import gzip

    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(broker.metrics_url).port or 0, timeout=60)
    connection.request("GET", "/metrics", headers={"accept-encoding": "gzip"})
    answer = connection.getresponse()
    assert answer.getheader("content-encoding") == "gzip"
    assert samples_of(gzip.decompress(answer.read()).decode())
    connection.close()


def test_paused_queues_are_counted(broker: RunningBroker) -> None:
    """Without their names, which are not for everybody."""
    before = metrics_of(broker)["leveret_queues_paused"]
    api = ApiClient(broker.management_url)
    api.ask("PUT", "queues/%2F/halted", {})
    api.ask("PUT", "leveret/queues/%2F/halted/state", {"paused": True})
    assert metrics_of(broker)["leveret_queues_paused"] == before + 1
    api.ask("DELETE", "queues/%2F/halted")


def test_health(tmp_path: Path) -> None:
    """Ready until the journal takes nothing; alive all the time."""
    with start_broker(management=True, data=tmp_path) as broker:
        assert ask(broker, "/health/live")[0] == ask(broker, "/health/ready")[0] == 200
        found = metrics_of(broker)
        assert found['leveret_journal_state{state="running"}'] == 1
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            channel.basic_publish("", "q", b"1", pika.BasicProperties(delivery_mode=2))
        assert metrics_of(broker)["leveret_journal_sync_seconds_count"] > found["leveret_journal_sync_seconds_count"]
        broker.ask(lambda: setattr(broker.runtime.broker.context.storage, "durability", _Failed()))
        status, _, text = ask(broker, "/health/ready")
        broker.ask(lambda: setattr(broker.runtime.broker.context.storage, "durability", None))
        assert (status, text) == (503, '{"status":"failed","reason":"the journal has failed"}')
        assert ask(broker, "/health/live")[0] == 200


class _Failed:
    has_failed = True


def test_histograms() -> None:
    """Buckets are sums of all below; the bound itself belongs to its bucket."""
    delays = Buckets((0.5, 1.0))
    for value, times in ((0.1, 1), (0.5, 3), (0.7, 1), (3.0, 1)):
        delays.add(value, times)
    texts = [(one.suffix, one.labels, one.value) for one in histogram(delays.bounds, delays.counts, delays.total)]
    assert texts == [
        ("_bucket", '{le="0.5"}', 4),
        ("_bucket", '{le="1.0"}', 5),
        ("_bucket", '{le="+Inf"}', 6),
        ("_count", "", 6),
        ("_sum", "", pytest.approx(5.3)),
    ]


def test_bounds_are_written_as_dashboards_ask_for_them() -> None:
    """`le` is compared as text."""
    labels = [one.labels for one in histogram((100, 100_000, 1_000_000, 50_000_000), [0] * 5, 0)]
    assert labels[:4] == ['{le="100.0"}', '{le="100000.0"}', '{le="1e+06"}', '{le="5e+07"}']


def test_labels_are_escaped() -> None:
    """By the text format: backslash, quote, new line; and NUL, at which a reader would stop."""
    assert escaped('a\\b"c\nd\0') == 'a\\\\b\\"c\\nd\\\\0'


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_metrics"])
def test_promtool_has_nothing_to_say(fresh: RunningBroker, path: str) -> None:
    """`promtool check metrics` parses and lints."""
    for name in HOSTILE:
        fresh.ask(lambda name=name: fresh.runtime.broker.virtual_hosts["/"].queues.declare(name, client=None))
    text = ask(fresh, path)[2]
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


LIMITED = """
[[address-setting]]
match = "q"
memory-limit = "2KiB"
cursor = "vm"
[[address-setting]]
match = "many"
max-size-messages = 2
address-full-policy = "BLOCK"
[[address-setting]]
match = "dying"
expiry-address = "many"
"""


def test_limits_and_who_waits_for_them() -> None:
    """What is used of which, how many connections wait for which, and the octets of theirs that wait in memory."""
    q, many = "queue 'q' in vhost '/'", "address 'many' in vhost '/'"
    of_q, of_many = f'{{address="{q}",limit="memory"}}', f'{{address="{many}",limit="max-size-messages"}}'

    def by_limit(found: dict[str, float], name: str) -> dict[str, float]:
        start = f"leveret_{name}{{"
        return {key.removeprefix(f"leveret_{name}"): value for key, value in found.items() if key.startswith(start)}

    with start_broker(management=True, config=LIMITED) as broker, ExitStack() as connections:
        opened = [connections.enter_context(pika.BlockingConnection(pika.URLParameters(broker.url))) for _ in range(3)]
        first, second, third = (connection.channel() for connection in opened)
        for queue in ("q", "many", "dying"):
            first.queue_declare(queue)
        first.basic_publish("", "many", b"1")
        first.basic_publish("", "q", bytes(100))
        first.queue_declare("q", passive=True)
        found = metrics_of(broker)
        assert by_limit(found, "limit_max") == {of_q: 2048, of_many: 2}
        used = by_limit(found, "limit_used")
        assert used[of_many] == 1 and 100 <= used[of_q] < 1100
        assert by_limit(found, "blocked_producers") == {}
        assert (found["leveret_held_bytes"], found["leveret_over_limit_total"]) == (0, 0)

        first.basic_publish("", "q", bytes(2048))
        first.queue_declare("q", passive=True)  # now it is full
        for channel in (first, second):
            channel.basic_publish("", "q", bytes(500))
        third.basic_publish("", "many", b"2")
        third.basic_publish("", "many", b"3")
        for connection in opened:
            connection.channel()  # what it sent before was read
        found = metrics_of(broker)
        assert {name: value for name, value in found.items() if name.startswith("leveret_blocked_producers")} == {
            f'leveret_blocked_producers{{vhost="/",address="{q}",why="memory"}}': 2,
            f'leveret_blocked_producers{{vhost="/",address="{many}",why="max-size-messages"}}': 1,
        }
        assert by_limit(found, "limit_used")[of_q] > 2048 and by_limit(found, "limit_used")[of_many] == 2
        assert 1001 <= found["leveret_held_bytes"] < 1300

        opened[0].channel().basic_publish("", "dying", b"4", pika.BasicProperties(expiration="0"))
        opened[0].channel()
        found = metrics_of(broker)
        assert (by_limit(found, "limit_used")[of_many], found["leveret_over_limit_total"]) == (3, 1)

        connection = connections.enter_context(pika.BlockingConnection(pika.URLParameters(broker.url)))
        channel = connection.channel()
        for queue in ("q", "many"):
            channel.queue_purge(queue)
        channel.queue_declare("q", passive=True)
        found = metrics_of(broker)
        assert (by_limit(found, "blocked_producers"), found["leveret_held_bytes"]) == ({}, 0)
        assert by_limit(found, "limit_used")[of_many] == 1


def test_the_alarm_of_the_replication(fresh: RunningBroker) -> None:
    """1 from when it is raised until it ends, and not for the operator's alarm."""
    flow = fresh.runtime.broker.flow
    seen = []
    for change in (
        lambda: flow.raise_alarm("by hand"),
        flow.end_alarm,
        lambda: flow.raise_replication("too few"),
        flow.end_replication,
    ):
        fresh.ask(change)
        seen.append(metrics_of(fresh)["leveret_alarm_replication"])
    assert seen == [0, 0, 1, 0]


def test_leased_messages_are_counted(fresh: RunningBroker) -> None:
    """Those of leased queues alone: unacknowledged messages of other queues are no leases."""
    with pika.BlockingConnection(pika.URLParameters(fresh.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("leased", durable=True, arguments={"x-queue-type": "amps"})
        channel.queue_declare("classic")
        for queue in ("leased", "leased", "leased", "classic"):
            channel.basic_publish("", queue, b"1")
        tag = channel.basic_get("leased")[0].delivery_tag
        other = channel.basic_get("leased")[0].delivery_tag
        channel.basic_get("classic")
        assert metrics_of(fresh)["leveret_queue_in_lease"] == 2
        channel.basic_ack(tag)
        channel.queue_declare("classic", passive=True)
        assert metrics_of(fresh)["leveret_queue_in_lease"] == 1
        channel.basic_nack(other, requeue=True)
        channel.queue_declare("classic", passive=True)
        assert metrics_of(fresh)["leveret_queue_in_lease"] == 0
