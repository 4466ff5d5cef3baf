"""Draw the pictures of the console's page for docs/console.md and docs/console-changes.md.

    python docs/draw_console.py [--tree DIR] [--suffix=-before] [--only WORD] [--seconds 75]
                                 [--all --out DIR]
    python docs/draw_console.py --join DIR DIR

With `--all` each scene is drawn at both widths, light and dark, as PNG files to look at. `--join` puts those of two
trees, before and after, into one picture a scene.

A broker of the tree (default: this one) gets the clients of `leveret demo`, and some more that an operator would ask
about. Then the distribution's Chromium, by playwright, shows each scene. Of an older tree the pictures get a suffix;
scenes that its page does not have show what it has instead.
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from itertools import islice
from json import dumps
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pika
import trio
from playwright.sync_api import Error, sync_playwright

from leveret.demo.traffic import run_programs

HERE = Path(__file__).parent
FOLDER = HERE / "pictures" / "console"
DEMO = HERE.parent / "src" / "leveret" / "demo" / "demo.toml"
WIDE, NARROW = 1280, 390
#: Pixels of a picture for one of the page, by width; its quality as WebP.
SCALE, QUALITY = {WIDE: 0.75, NARROW: 1.0}, 55
HEIGHTS = {WIDE: 760, NARROW: 700}
SCHEMES = ("light", "dark")
#: Pixels of the height of a picture among others, and the quality of all together.
JOINED, QUALITY_JOINED = 400, 45
WAIT_MS, LOADED_MS = 3_000, 30_000
#: Pixels of the page's head, which stays when the page is moved.
HEAD = {WIDE: 70, NARROW: 120}
LOGIN = "Basic Z3Vlc3Q6Z3Vlc3Q="


class Page:
    """The browser's tab, with what scenes do in it. What an older page does not have is left out."""

    def __init__(self, tab: Any, url: str) -> None:
        self.tab = tab
        self.url = url

    def go(self, *segments: str, query: str = "") -> None:
        self.tab.goto(f"{self.url}#/{'/'.join(quote(one, safe='') for one in segments)}{query}")
        self.tab.get_by_role("heading", level=1).first.wait_for()
        self.tab.wait_for_timeout(LOADED_MS / 10)  # the page before has a heading, too

    def tries(self, *deeds: Callable[[], Any]) -> None:
        """Do each, and look at once for the next one where there is nothing to do it with."""
        for deed in deeds:
            with suppress(Error):
                deed()
        self.tab.wait_for_timeout(700)

    def part(self, name: str) -> None:
        self.tries(lambda: self.tab.get_by_role("link", name=name, exact=True).last.click(timeout=WAIT_MS))

    def unfolds(self, title: str) -> None:
        self.tries(lambda: self.tab.locator("summary").filter(has_text=title).first.click(timeout=WAIT_MS))

    def presses(self, name: str) -> None:
        self.tries(lambda: self.tab.get_by_role("button", name=name).first.click(timeout=WAIT_MS))

    def fills(self, **values: str) -> None:
        for name, value in values.items():
            field = self.tab.locator(f"[name={name}]:visible").first
            self.tries(lambda field=field, value=value: field.fill(value, timeout=WAIT_MS))

    def shows(self, text: str) -> None:
        """Bring a heading, or what is folded, to the top."""
        place = self.tab.locator("h2, summary").filter(has_text=text).first
        head = HEAD[self.tab.viewport_size["width"]]
        self.tries(
            lambda: place.evaluate(f"one => scrollBy(0, one.getBoundingClientRect().top - {head})", timeout=WAIT_MS)
        )


@dataclass(frozen=True)
class Scene:
    """One picture. `draws`: what is done before it; `user`: who has logged in."""

    name: str
    draws: Callable[[Page], None]
    width: int = WIDE
    is_dark: bool = False
    user: str = "guest"


def _messages(page: Page) -> None:
    page.go(
        "queues", "/", "invoices", query="?tab=messages&as=table&columns=position,body.customer.name,headers.tenant"
    )
    page.unfolds("Browse messages")
    page.fills(count="8")
    page.presses("Browse")
    page.shows("Browse")


def _fill_policy(page: Page) -> None:
    page.go("policies")
    page.unfolds("Add or replace a policy")
    page.fills(name="short", pattern="^archive$", definition='{"max-length": 5}')


def _policy(page: Page) -> None:
    _fill_policy(page)
    page.shows("Add or replace a policy")
    page.unfolds("Keys to add")
    page.shows("Keys to add")


def _policy_step(page: Page) -> None:
    _fill_policy(page)
    page.tries(lambda: page.tab.locator("[name=apply]").first.select_option("queues", timeout=WAIT_MS))
    if page.tab.locator("[name=apply_to]").count():  # the older page does it without a word
        page.presses("Save")


def _deletion(page: Page) -> None:
    page.go("queues", "/", "archive")
    page.presses("Delete the queue …")


def _add_user(page: Page) -> None:
    page.go("users")
    page.unfolds("Add a user")
    page.fills(name="robot", tags="")


def _grants(page: Page) -> None:
    page.go("users", "reader")
    page.shows("Limits")


def _definitions(page: Page) -> None:
    document = {
        "queues": [
            {"name": "orders", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}},
            {"name": "returns", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}},
        ],
        "policies": [
            {"vhost": "/", "name": "ttl", "pattern": "^archive$", "apply-to": "queues", "priority": 0,
             "definition": {"message-ttl": 60000}},
        ],
    }  # fmt: skip
    page.go("definitions")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "definitions.json"
        file.write_text(dumps(document))
        page.tries(lambda: page.tab.locator("input[type=file]").set_input_files(str(file), timeout=WAIT_MS))
    page.shows("Import")


def _columns(page: Page) -> None:
    page.go("queues")
    page.unfolds("Columns")


def _to(*segments: str, part: str = "", shows: str = "", query: str = "") -> Callable[[Page], None]:
    def draws(page: Page) -> None:
        page.go(*segments, query=query)
        if part:
            page.part(part)
        if shows:
            page.shows(shows)

    return draws


def _client(page: Page) -> None:
    page.go("connections")
    page.tries(lambda: page.tab.locator("main").get_by_role("link", name="import").first.click(timeout=WAIT_MS))
    page.tab.wait_for_timeout(1500)


SCENES = [
    Scene("overview", _to("")),
    Scene("overview-narrow-dark", _to(""), NARROW, is_dark=True),
    Scene("connections", _to("connections")),
    Scene("connection-narrow", _client, NARROW),
    Scene("queues-columns", _columns),
    Scene("queue-dark", _to("queues", "/", "orders"), is_dark=True),
    Scene("queue-clients-dark", _to("queues", "/", "orders", part="Clients", shows="Consumers"), is_dark=True),
    Scene("messages", _messages),
    Scene("policy-keys-narrow", _policy, NARROW),
    Scene("policy-step", _policy_step),
    Scene("deletion-narrow-dark", _deletion, NARROW, is_dark=True),
    Scene("user-added", _add_user),
    Scene("user-limits-narrow", _grants, NARROW),
    Scene("import", _definitions),
    Scene("not-permitted-dark", _to("queues", "/", "archive", shows="Purge"), is_dark=True, user="reader"),
    Scene("changes-dark", _to("changes"), is_dark=True),
    Scene("log-narrow-dark", _to("log"), NARROW, is_dark=True),
    Scene("parameters", _to("parameters")),
    Scene("node-narrow", _to("node", shows="Over time"), NARROW),
    Scene("scheduled-dark", _to("scheduled"), is_dark=True),
    Scene("dead-letters", _to("dead-letters")),
    Scene("commands-narrow", _to("commands"), NARROW),
]


def ask(url: str, method: str, path: str, body: Any = None) -> None:
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    content = None if body is None else dumps(body)
    connection.request(method, f"/api/{path}", content, {"authorization": LOGIN, "content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status >= 400:
        print(f"{method} {path}: {answer.status} {text[:200]!r}", file=sys.stderr)
    connection.close()


def prepare(url: str, amqp: str) -> Iterator[None]:
    """Queues, users and policies beside those of the demo; a client that keeps its messages, until this goes on."""
    for vhost in ("shop", "billing"):
        ask(url, "PUT", f"vhosts/{vhost}", {"description": f"of the {vhost}"})
    for name in ("archive", "invoices"):
        ask(url, "PUT", f"queues/%2F/{name}", {"durable": True})
    ask(url, "PUT", "users/reader", {"password": "reader", "tags": "management"})
    ask(url, "PUT", "permissions/%2F/reader", {"configure": "^$", "write": "^$", "read": "^invoices"})
    for length in (5000, 2000, 1000):
        ask(url, "PUT", "policies/%2F/bounded", {"pattern": "^audit", "definition": {"max-length": length}})
    ask(url, "PUT", "parameters/federation-upstream/%2F/berlin", {"value": {"uri": "amqp://berlin.example"}})
    parameters = pika.URLParameters(amqp)
    parameters.client_properties, parameters.heartbeat = {"connection_name": "billing"}, 0
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(300):
            channel.basic_publish("", "archive", b"x" * 100)
            if number < 40:
                name, tenant = ("Ann", "acme") if number % 3 else ("Bob", "umbrella")
                body = {"invoice": 7000 + number, "customer": {"name": name}, "total": 12.5 * (number + 1)}
                properties = pika.BasicProperties(headers={"tenant": tenant}, message_id=f"invoice-{7000 + number}")
                channel.basic_publish("", "invoices", dumps(body).encode(), properties)
        channel.basic_qos(prefetch_count=3)
        channel.basic_consume("invoices", lambda *_: None, consumer_tag="clerk")
        connection.process_data_events(time_limit=1)
        yield


@contextmanager
def broker(tree: Path) -> Iterator[tuple[str, str]]:
    """A broker of that tree with the clients of the demo: its address, and that of its console."""
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w") as log:
        shutil.copy(DEMO, folder)  # the page shows paths of configuration files
        serve = [sys.executable, "-m", "leveret", "serve", "--config", DEMO.name, "--listen", "127.0.0.1:0"]
        serve += ["--management", "127.0.0.1:0", "--data", "data"]
        environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
        process = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=folder)
        try:
            assert process.stdout is not None
            amqp, url = sorted(line.removeprefix("leveret ready ").strip() for line in islice(process.stdout, 2))
            place, ends = urlsplit(amqp), trio.CancelScope()
            began: queue.Queue[trio.lowlevel.TrioToken] = queue.Queue()

            async def run() -> None:
                began.put(trio.lowlevel.current_trio_token())
                with ends:
                    await run_programs(place.hostname or "", place.port or 0)

            clients = threading.Thread(target=trio.run, args=(run,))
            clients.start()
            yield amqp, url
            trio.from_thread.run_sync(ends.cancel, trio_token=began.get())
            clients.join()
        finally:
            process.terminate()
            process.wait()


@contextmanager
def drawn(browser: Any, scene: Scene, url: str) -> Iterator[Any]:
    """The browser's tab with a scene."""
    context = browser.new_context(
        viewport={"width": scene.width, "height": HEIGHTS[scene.width]},
        device_scale_factor=SCALE[scene.width],
        color_scheme="dark" if scene.is_dark else "light",
        reduced_motion="reduce",
    )
    tab = context.new_page()
    tab.goto(url)
    tab.get_by_label("User").fill(scene.user)
    tab.get_by_label("Password").fill(scene.user)
    tab.get_by_role("button", name="Log in").click()
    tab.get_by_role("heading", level=1).first.wait_for()
    scene.draws(Page(tab, url))
    tab.mouse.move(0, 0)
    for waiting in ("Loading", "Counting"):
        tab.get_by_text(waiting).first.wait_for(state="detached", timeout=LOADED_MS)
    tab.wait_for_timeout(500)
    yield tab
    context.close()


def draw(browser: Any, scene: Scene, url: str, file: Path) -> None:
    with drawn(browser, scene, url) as tab:
        chrome = tab.context.new_cdp_session(tab)
        picture = chrome.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})["data"]
    file.write_bytes(b64decode(picture))


def draw_all(browser: Any, scene: Scene, url: str, folder: Path) -> None:
    """At both widths, light and dark."""
    for width in (WIDE, NARROW):
        with drawn(browser, replace(scene, width=width, is_dark=False), url) as tab:
            for scheme in SCHEMES:
                tab.emulate_media(color_scheme=scheme)
                tab.wait_for_timeout(300)
                tab.screenshot(path=folder / f"{scene.name}-{width}-{scheme}.png")


def join(browser: Any, before: Path, after: Path, folder: Path) -> None:
    """One picture a scene: a row for each tree, with both widths, light and dark."""
    context = browser.new_context(viewport={"width": 100, "height": 100})
    tab = context.new_page()
    for scene in SCENES:
        rows = []
        for source in (before, after):
            files = [source / f"{scene.name}-{width}-{scheme}.png" for width in (WIDE, NARROW) for scheme in SCHEMES]
            if all(file.exists() for file in files):
                images = "".join(
                    f'<img height={JOINED} src="data:image/png;base64,{b64encode(file.read_bytes()).decode()}">'
                    for file in files
                )
                rows.append(f'<div style="display: flex; gap: 6px">{images}</div>')
        tab.set_content(f'<body style="margin: 0"><main style="display: inline-grid; gap: 6px">{"".join(rows)}</main>')
        box = tab.locator("main").bounding_box()
        picture = context.new_cdp_session(tab).send(
            "Page.captureScreenshot",
            {"format": "webp", "quality": QUALITY_JOINED, "captureBeyondViewport": True,
             "clip": {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}},
        )["data"]  # fmt: skip
        file = folder / f"{scene.name.removesuffix('-dark').removesuffix('-narrow')}-forms.webp"
        file.write_bytes(b64decode(picture))
        print(f"{file.name:40}{file.stat().st_size:8}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tree", type=Path, default=HERE.parent)
    parser.add_argument("--suffix", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--all", action="store_true", help="each scene at both widths, light and dark, as PNG")
    parser.add_argument("--join", type=Path, nargs=2, metavar="DIR", help="what --all drew of two trees: before, after")
    parser.add_argument("--seconds", type=float, default=75, help="of traffic before the first picture")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    if options.join:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=options.browser, args=arguments)
            join(browser, *options.join, options.out)
            browser.close()
        return
    with broker(options.tree.resolve()) as (amqp, url), sync_playwright() as playwright:
        client = prepare(url, amqp)
        next(client)
        time.sleep(options.seconds)
        browser = playwright.chromium.launch(executable_path=options.browser, args=arguments)
        for scene in SCENES:
            if options.only not in scene.name:
                continue
            if options.all:
                draw_all(browser, scene, url, options.out)
            else:
                file = options.out / f"{scene.name}{options.suffix}.webp"
                draw(browser, scene, url, file)
                print(f"{file.name:40}{file.stat().st_size:8}", flush=True)
        browser.close()
        next(client, None)


if __name__ == "__main__":
    main()
