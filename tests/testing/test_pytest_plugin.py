"""The pytest plugin in test runs of their own: alone, beside other plugins, in parallel, on another broker."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from consumers import channel_of

from leveret.interop.brokers.peers import WITHOUT_RABBITMQ, find_rabbitmq, rabbitmq
from leveret.testing import RunningBroker, start_broker


def run(folder: Path, *arguments: str) -> "tuple[int, str]":
    """pytest on what is in a folder: exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "--timeout=180", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
    )
    return done.returncode, done.stdout + done.stderr


PUBLISH = """
import pika

def publish(url, queue, body):
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare(queue, auto_delete=False)
    channel.basic_publish("", queue, body)
    connection.close()
    return queue
"""

TESTS = (
    PUBLISH
    + """
import pytest

@pytest.mark.parametrize("number", range(20))
def test_own_virtual_host(amqp_broker, amqp_url, number):
    assert amqp_broker.queues() == ()
    publish(amqp_url, "q", str(number))
    amqp_broker.assert_queue("q", ready=[str(number)])
    assert len(amqp_broker.published()) == 1
    amqp_broker.remove("q")
"""
)


def test_fixtures_give_each_test_a_broker_as_new(tmp_path: Path) -> None:
    """The queue of the test before is not there."""
    (tmp_path / "test_it.py").write_text(TESTS)
    code, output = run(tmp_path)
    assert code == 0, output
    assert "20 passed" in output
    assert "left behind" not in output  # the virtual host is thrown away, with its queues
    code, output = run(tmp_path, "-o", "amqp_leaked_queues=true")
    assert code == 0 and "left behind in the broker" in output
    assert "queue 'q' was left behind (empty)" in output


def test_leaks_fail_when_asked(tmp_path: Path) -> None:
    """An error at the teardown that names what is left: a connection, a consumer, an unacked message."""
    (tmp_path / "test_it.py").write_text(
        PUBLISH
        + """
import pytest
LEFT = []

def test_leaks(amqp_url):
    publish(amqp_url, "q", "x")
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    LEFT.append(connection)
    channel = connection.channel()
    channel.basic_get("q")

@pytest.mark.amqp(leaks=True)
def test_may_leak(amqp_url):
    LEFT.append(pika.BlockingConnection(pika.URLParameters(amqp_url)))

def test_queues_are_no_leaks(amqp_url):
    publish(amqp_url, "q", "x")

def test_is_clean(amqp_url):
    pika.BlockingConnection(pika.URLParameters(amqp_url)).close()
"""
    )
    for arguments in (["--amqp-fail-on-leak"], ["-o", "amqp_fail_on_leak=true"]):
        code, output = run(tmp_path, *arguments)
        assert code == 1, output
        assert "4 passed, 1 error" in output
        assert re.search(
            r"connection '127.0.0.1:\d+ -> .*' is open \(1 channel, 0 consumers, 1 unacked message\)", output
        )
        assert "routing key 'q': x" in output


def test_the_marker_turns_the_clock(tmp_path: Path) -> None:
    """Virtual for one test, real for the next; and by the ini file for all."""
    (tmp_path / "test_it.py").write_text(
        """
import pytest

@pytest.mark.amqp(clock="virtual")
def test_virtual(amqp_broker):
    amqp_broker.clock.advance(hours=2)
    assert amqp_broker.clock.elapsed == 7200

def test_other(amqp_broker, pytestconfig):
    assert amqp_broker.clock.mode == pytestconfig.getini("amqp_clock")
"""
    )
    for arguments in ([], ["-o", "amqp_clock=virtual"]):
        code, output = run(tmp_path, "--strict-markers", *arguments)
        assert code == 0, output


#: Runs on any broker, as far as it does not look inside.
ANYWHERE = (
    PUBLISH
    + """
import pytest

def test_plain(amqp_url):
    publish(amqp_url, "made there", "x")

def test_url_of_the_broker(amqp_broker):
    assert amqp_broker.url.startswith("amqp://")

def test_inside(amqp_broker, amqp_url):
    publish(amqp_url, "made there", "x")
    amqp_broker.assert_queue("made there", ready=2)

@pytest.mark.amqp(clock="virtual")
def test_clock(amqp_broker):
    amqp_broker.clock.advance(hours=1)
"""
)


def test_a_misspelt_marker_fails_without_a_broker_too(tmp_path: Path) -> None:
    """It would do nothing, and nobody would know."""
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.amqp(clokc='virtual')\ndef test_it(): pass\n")
    code, output = run(tmp_path)
    assert code == 1 and "unknown keyword 'clokc', did you mean 'clock'?" in output, output


def test_ini_keys(tmp_path: Path) -> None:
    """Configuration, profile and patience, from the project's own ini file; what is no number is said to be none."""
    (tmp_path / "broker.toml").write_text('[[address]]\nname = "orders"\n[[address.queue]]\nname = "orders"\n')
    ini = "[pytest]\namqp_clock = virtual\namqp_config = broker.toml\namqp_profile = rabbitmq-3.10\namqp_quiet_ms = "
    (tmp_path / "pytest.ini").write_text(ini + "25\n")
    (tmp_path / "test_it.py").write_text(
        """
def test_it(amqp_session_broker):
    assert [queue.name for queue in amqp_session_broker.queues()] == ["orders"]
    options = amqp_session_broker.runtime.options
    assert (options.quiet_ms, options.configuration.broker.profile) == (25, "rabbitmq-3.10")
    amqp_session_broker.clock.advance(hours=1)
"""
    )
    code, output = run(tmp_path)
    assert code == 0, output
    (tmp_path / "pytest.ini").write_text(ini + "soon\n")
    code, output = run(tmp_path)
    assert code == 1 and "amqp_quiet_ms: 'soon' is not a number of milliseconds" in output


def check_anywhere(folder: Path, url: str) -> None:
    """What only publishes and consumes runs there, the rest says why not."""
    (folder / "test_it.py").write_text(ANYWHERE)
    code, output = run(folder, "--amqp-url", url)
    assert code == 0, output
    assert "2 passed, 2 skipped" in output
    assert "amqp_broker.assert_queue looks into the broker, and --amqp-url names one that can't be" in output
    assert "this test sets the broker's clock, and --amqp-url names one that has none to set" in output


def test_on_another_broker_tests_that_look_inside_skip(tmp_path: Path) -> None:
    """--amqp-url: on another Leveret; what was made there is there."""
    with start_broker() as other:
        check_anywhere(tmp_path, other.url)
        other.assert_queue("made there", ready=2)


@pytest.mark.peer
@pytest.mark.skipif(find_rabbitmq() is None, reason=WITHOUT_RABBITMQ)
def test_the_same_tests_on_rabbitmq(tmp_path: Path) -> None:
    """The same file: what was published is on RabbitMQ, and nothing of ours was started."""
    with rabbitmq() as peer:
        check_anywhere(tmp_path, peer.url)
        with channel_of(peer.url) as channel:
            assert channel.queue_declare("made there", passive=True).method.message_count == 2


def test_xdist_workers_do_not_clash(tmp_path: Path) -> None:
    """Two workers, twice in a row: a broker in each."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text(
        PUBLISH + "def test_leaks(amqp_url):\n    publish(amqp_url, 'from a worker', 'x')\n"
    )
    for _ in range(2):
        code, output = run(
            tmp_path, "-n", "2", "-v", "-o", "amqp_leaked_queues=true"
        )  # -v: all leaks are listed, whatever their order
        assert code == 0, output
        assert "21 passed" in output
        assert "queue 'from a worker' was left behind (1 ready)" in output


def test_a_leak_that_fails_a_test_is_told_once(tmp_path: Path) -> None:
    """In the failure, and not beside it."""
    (tmp_path / "test_it.py").write_text(PUBLISH + "def test_leaks(amqp_url):\n    publish(amqp_url, 'left', 'x')\n")
    code, output = run(tmp_path, "--amqp-fail-on-leak", "-o", "amqp_leaked_queues=true")
    assert (code, output.count("queue 'left' was left behind")) == (1, 1), output


def test_a_long_list_of_leaks_is_cut(tmp_path: Path) -> None:
    """Twenty tests are named, all of them with -v."""
    (tmp_path / "test_it.py").write_text(
        PUBLISH
        + """
import pytest

@pytest.mark.parametrize("number", range(23))
def test_leaks(amqp_url, number):
    publish(amqp_url, f"q{number}", "x")
"""
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\namqp_leaked_queues = true\n")
    code, output = run(tmp_path)
    assert code == 0, output
    assert "queue 'q19' was left behind" in output and "queue 'q20'" not in output
    assert "... and 3 more tests; -v names them" in output
    _, output = run(tmp_path, "-v")
    assert "queue 'q22' was left behind" in output


def test_beside_asyncio_trio_and_coverage(tmp_path: Path) -> None:
    """aio-pika under pytest-asyncio, trio under pytest-trio, both with virtual time, measured by pytest-cov."""
    (tmp_path / "shop.py").write_text(PUBLISH)
    (tmp_path / "test_it.py").write_text(
        """
import aio_pika
import pytest
import trio
from shop import publish

@pytest.mark.asyncio
@pytest.mark.amqp(clock="virtual")
async def test_asyncio(amqp_broker, amqp_url):
    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("q", auto_delete=True, arguments={"x-message-ttl": 60_000})
        await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)
        amqp_broker.assert_queue("q", ready=[b"x"])
        await amqp_broker.clock.advance_async(minutes=1)
        await amqp_broker.settled_async()

@pytest.mark.trio
@pytest.mark.amqp(clock="virtual")
async def test_trio(amqp_broker, nursery):
    async with await trio.open_tcp_stream("127.0.0.1", amqp_broker.port) as stream:
        await stream.send_all(b"AMQP\\x00\\x00\\x09\\x01")
        assert await stream.receive_some(10)
    await amqp_broker.clock.advance_async(minutes=1)

def test_plain(amqp_url):
    assert publish(amqp_url, "q", "x") == "q"
"""
    )
    code, output = run(tmp_path, "--cov=shop", "--cov-report=term", "-W", "ignore::pytest.PytestDeprecationWarning")
    assert code == 0, output
    assert "3 passed" in output
    assert re.search(r"shop\.py\s+8\s+0\s+100%", output), output


def test_in_a_django_project(tmp_path: Path) -> None:
    """Its own settings.py and engine/ stay its own; kombu publishes to our broker."""
    (tmp_path / "settings.py").write_text(
        'SECRET_KEY = "s"\nINSTALLED_APPS = []\nBROKER_URL = ""\n'
        'DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}\n'
    )
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("WHOSE = 'theirs'\n")
    (tmp_path / "conftest.py").write_text(
        "import os\nos.environ['DJANGO_SETTINGS_MODULE'] = 'settings'\nimport django\ndjango.setup()\n"
    )
    (tmp_path / "test_it.py").write_text(
        """
import engine
import settings as their_settings
from django.conf import settings
from django.test import override_settings
from kombu import Connection

def test_kombu(amqp_broker, amqp_url):
    assert engine.WHOSE == "theirs" and their_settings.SECRET_KEY == settings.SECRET_KEY == "s"
    with override_settings(BROKER_URL=amqp_url), Connection(settings.BROKER_URL) as connection:
        queue = connection.SimpleQueue("mails")
        queue.put({"to": "hare"})
        amqp_broker.assert_published("mails", body={"to": "hare"})
        message = queue.get(timeout=60)
        assert message.payload == {"to": "hare"}
        message.ack()
        queue.close()
    amqp_broker.settled()
"""
    )
    code, output = run(tmp_path)
    assert code == 0, output
    assert "1 passed" in output


def test_a_run_without_a_broker_imports_nothing_of_it(tmp_path: Path) -> None:
    """The plugin is there, and neither trio nor pamqp nor leveret.testing is."""
    (tmp_path / "test_it.py").write_text(
        """
import sys

def test_it(pytestconfig):
    assert pytestconfig.pluginmanager.has_plugin("leveret")
    assert not {"pamqp", "leveret.testing", "leveret.engine", "leveret.settings"} & set(sys.modules)
"""
    )
    code, output = run(tmp_path, "-p", "no:trio", "-p", "no:pytest_trio")
    assert code == 0, output


def test_unittest_mixin(tmp_path: Path) -> None:
    """Without pytest: a broker a class, as new for each test; leaks fail when asked for."""
    (tmp_path / "test_it.py").write_text(
        PUBLISH
        + """
import unittest
from leveret.testing import BrokerTestMixin

class Shop(BrokerTestMixin, unittest.TestCase):
    amqp_clock = "virtual"

    def test_one(self):
        publish(self.amqp_url, "q", "x")
        self.amqp_broker.assert_queue("q", ready=["x"])
        self.amqp_broker.clock.advance(hours=1)

    def test_two(self):
        self.assertEqual(self.amqp_broker.queues(), ())

class Leaky(BrokerTestMixin, unittest.TestCase):
    amqp_fail_on_leak = True
    amqp_leaked_queues = True

    def test_leaks(self):
        publish(self.amqp_url, "q", "x")

    def test_cleans_up(self):
        publish(self.amqp_url, "q", "x")
        connection = pika.BlockingConnection(pika.URLParameters(self.amqp_url))
        self.addCleanup(connection.close)
        self.addCleanup(connection.channel().queue_delete, "q")
"""
    )
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-v", "test_it"], cwd=tmp_path, capture_output=True, text=True, timeout=180
    )
    assert "Ran 4 tests" in done.stderr
    assert "FAILED (failures=1)" in done.stderr
    assert "queue 'q' was left behind (1 ready)" in done.stderr


@pytest.mark.amqp(clock="virtual")
def test_this_run_has_the_plugin_too(amqp_broker: RunningBroker, amqp_url: str) -> None:
    """The fixtures of this very run."""
    assert amqp_url.startswith(f"amqp://guest:guest@127.0.0.1:{amqp_broker.port}/test%20")
    assert amqp_broker.clock.mode == "virtual"
