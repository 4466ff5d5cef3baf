"""What a scrape costs the broker: CPU of the pages and of health with many queues, and the longest step.

python benchmarks/metrics_cost.py [QUEUES] [CONNECTIONS]: a broker of its own in this process; medians of 20.
"""

import http.client
import statistics
import sys
import time
from urllib.parse import urlsplit

import pika

from leveret.console.metrics.aggregated import aggregated_page
from leveret.console.metrics.buckets import DELAYS, Buckets
from leveret.console.metrics.objects import per_object_page
from leveret.engine import Broker, Envelope, Session
from leveret.serving.console import console_options
from leveret.serving.metrics_facts import metrics_facts
from leveret.testing import RunningBroker, start_broker

ROUNDS = 20
MS = 1000


def fill(broker: Broker, count: int, session: Session) -> None:
    """Queues, every second one with a message."""
    vhost = broker.virtual_hosts["/"]
    for number in range(count):
        name = f"queue-{number:05}"
        vhost.queues.declare(name, client=None, durable=True)
        if number % 2:
            route = vhost.router.route("", name, session.client.user)
            session.publish(route, Envelope("", name), [b"\0" * 14 + b"x" * 100], mandatory=False)
    broker.end_turn()


def cpu_of_requests(broker: RunningBroker, path: str) -> float:
    """Milliseconds of the broker's thread, its HTTP server included. The client's part is in it as well: some 0.2."""
    port = urlsplit(broker.metrics_url).port or 0
    found = []
    for _ in range(ROUNDS):
        before = broker.ask(time.thread_time)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path)
        connection.getresponse().read()
        connection.close()
        found.append((broker.ask(time.thread_time) - before) * MS)
    return statistics.median(found)


def longest_step(broker: RunningBroker, page: str) -> float:
    """Milliseconds for which a page keeps the event loop from others."""
    runtime = broker.runtime
    configuration = runtime.configuration
    facts = metrics_facts(lambda: configuration, None, lambda: None, Buckets(DELAYS))
    options = console_options(runtime._built.control, configuration, 0, None, list)

    def run() -> float:
        longest = 0.0
        if page == "/metrics":
            steps = aggregated_page(runtime.broker, options, facts, shows_names=True)
        else:
            steps = per_object_page(runtime.broker, options, facts)
        while True:
            before = time.thread_time()
            try:
                next(steps)
            except StopIteration:
                return max(longest, time.thread_time() - before)
            longest = max(longest, time.thread_time() - before)

    return statistics.median([broker.ask(run) for _ in range(5)]) * MS


def main(queues: int = 10_000, connections: int = 200) -> None:
    """Print a table."""
    with start_broker(management=True) as broker:
        clients = [pika.BlockingConnection(pika.URLParameters(broker.url)) for _ in range(connections)]
        for client in clients:
            client.channel()
        session = broker.ask(lambda: next(iter(next(iter(broker.runtime.broker.connections)).sessions)))
        broker.ask(lambda: fill(broker.runtime.broker, queues, session))
        print(f"{queues} queues, half of them with a message, {connections} connections; ms of CPU, median of {ROUNDS}")
        for path in ("/health/live", "/health/ready", "/metrics", "/metrics/per-object"):
            print(f"{path:24}{cpu_of_requests(broker, path):8.2f}")
        for path in ("/metrics", "/metrics/per-object"):
            print(f"longest step of {path:20}{longest_step(broker, path):8.2f}")
        for client in clients:
            client.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
