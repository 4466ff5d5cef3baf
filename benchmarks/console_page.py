"""What the console's page costs a browser while much happens, and its broker while it has many queues.

    python benchmarks/console_page.py [--queues 5000] [--events 1000] [--seconds 30] [--many 100000] [--out FILE]

The distribution's Chromium shows each page, refreshed each second; measured is the share of a core of the renderer's
main thread: by the kernel's count of its CPU, and by Chrome's own TaskDuration on its thread clock. Meanwhile messages
are published and consumed, four events each, and the events are counted. Then the broker gets many queues: CPU of its
process for the first page of their list, medians of 20, less what it takes without requests.
"""

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
from brokers import machine
from console_size import IDLE_SECONDS, ROUNDS, ask, cpu_ns, definitions

from leveret.interop.tools.brokers import HttpBroker, http_broker
from leveret.interop.wire.loopback import LOOPBACK

EVENTS_A_MESSAGE = 4  # published, routed, delivered, acked
#: Seconds between bursts; queues that get the messages of a burst in turn, since a run of one queue is one event.
BURST_S, TARGETS = 0.02, 50
PAGES = {
    "overview": "#/",
    "queues": "#/queues",
    "one queue": "#/queues/%2F/queue-00000",
    "events": "#/events",
    "log": "#/log",
    "connections": "#/connections",
}
FIRST_PAGES = {
    "first page": "/api/queues?page=1&page_size=100&pagination=true",
    "the same, by messages": "/api/queues?page=1&page_size=100&sort=messages&sort_reverse=true&pagination=true",
    "the same, by a rate": "/api/queues?page=1&page_size=100&sort=message_stats.publish_details.rate&pagination=true",
    "the same, found by a name": "/api/queues?page=1&page_size=100&name=99&pagination=true",
}


@contextmanager
def traffic(port: int, events: int) -> Iterator[None]:
    """Messages to queues with a consumer, in bursts, until the block ends."""
    over = threading.Event()

    def run() -> None:
        parameters = pika.ConnectionParameters(LOOPBACK, port, heartbeat=0)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            for number in range(TARGETS):
                queue = f"queue-{number:05}"
                channel.basic_consume(queue, lambda _, method, *__: channel.basic_ack(method.delivery_tag))
            began, sent = time.monotonic(), 0
            while not over.is_set():
                due = int((time.monotonic() - began) * events / EVENTS_A_MESSAGE)
                for number in range(sent, due):
                    channel.basic_publish("", f"queue-{number % TARGETS:05}", b'{"order": 1}')
                sent = due
                connection.process_data_events(time_limit=BURST_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def main_thread_s(browser: Any) -> float:
    """Seconds of CPU of the main threads of renderers until now, in ticks of 10 ms: one of them shows the page."""
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    ticks = 0
    for pid in (one["id"] for one in processes if one["type"] == "renderer"):
        fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def events_until_now(at: HttpBroker) -> int:
    return int(json.loads(ask(at, "GET", "/api/leveret/events?count=0")[1])["next"])


def shown(at: HttpBroker, program: str, seconds: float) -> dict[str, Any]:
    """The share of a core of the renderer's main thread for each page, and the events a second meanwhile."""
    from playwright.sync_api import sync_playwright

    found = {}
    with sync_playwright() as playwright:
        arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        url = f"http://{LOOPBACK}:{at.management}/"
        tab.goto(url)
        tab.get_by_label("User").fill("guest")
        tab.get_by_label("Password").fill("guest")
        tab.get_by_role("button", name="Log in").click()
        tab.get_by_role("heading", level=1).wait_for()
        tab.get_by_label("Refresh").select_option("1")
        chrome = tab.context.new_cdp_session(tab)
        chrome.send("Performance.enable", {"timeDomain": "threadTicks"})

        def now() -> list[float]:
            metrics = {one["name"]: one["value"] for one in chrome.send("Performance.getMetrics")["metrics"]}
            return [main_thread_s(browser), metrics["TaskDuration"], events_until_now(at), time.monotonic()]

        for name, address in PAGES.items():
            tab.goto(url + address)
            tab.wait_for_timeout(3000)
            before = now()
            tab.wait_for_timeout(seconds * 1000)
            *taken, elapsed = (after - one for after, one in zip(now(), before))
            thread, tasks, events = (one / elapsed for one in taken)
            found[name] = {"main_thread": round(thread, 3), "tasks": round(tasks, 3), "events_a_second": round(events)}
            print(f"{name:20}{found[name]}", flush=True)
        browser.close()
    return found


def first_pages(at: HttpBroker) -> dict[str, float]:
    """Milliseconds of CPU of the broker a request."""
    pid, began = at.peer.pid, time.monotonic()
    before = cpu_ns(pid)
    time.sleep(IDLE_SECONDS)
    idle = (cpu_ns(pid) - before) / (time.monotonic() - began)
    found = {}
    for name, path in FIRST_PAGES.items():
        taken = []
        for _ in range(ROUNDS):
            before, began = cpu_ns(pid), time.monotonic()
            ask(at, "GET", path)
            taken.append((cpu_ns(pid) - before - idle * (time.monotonic() - began)) / 1e6)
        found[name] = round(statistics.median(taken), 1)
        print(f"{name:30}{found[name]} ms of CPU", flush=True)
    return found


def main() -> None:
    """Print figures; `--out` keeps them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--queues", type=int, default=5_000)
    parser.add_argument("--events", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with http_broker("leveret", as_installed=True) as at:
        ask(at, "POST", "/api/definitions", json.dumps(definitions(options.queues, 0)).encode())
        with traffic(at.peer.port, options.events):
            pages = shown(at, options.browser, options.seconds)
        ask(at, "POST", "/api/definitions", json.dumps(definitions(options.many, 0)).encode())
        broker = first_pages(at)
    sizes = {"queues": options.queues, "events": options.events, "seconds": options.seconds, "many": options.many}
    result = {"machine": machine(), "load": os.getloadavg(), **sizes, "pages": pages, "first_pages_ms": broker}
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
