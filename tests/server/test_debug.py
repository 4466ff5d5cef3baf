"""`leveret serve --debug`: a broker whose engine contradicts itself stops, and says how; any other goes on."""

import subprocess
import sys
from pathlib import Path

import pika
import pytest
import trio
from broker_process import leveret_serve
from trio.testing import MockClock, wait_all_tasks_blocked

from leveret.engine import Broker, ManualClock
from leveret.engine.invariants import InvariantBroken
from leveret.serving.served_broker import CHECK_INTERVAL_S, check_invariants

#: `leveret serve` whose queues' count of what is unacknowledged is one too high from the first declaration on.
MISCOUNTING = """
import sys
from leveret.__main__ import main
from leveret.engine.queues import queue

plain = queue.Queue.__init__

def miscounts(self, *of, **options):
    plain(self, *of, **options)
    self.events.unacked += 1

queue.Queue.__init__ = miscounts
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.contradicts
def test_it_looks_until_something_is_wrong() -> None:
    """Each interval again."""

    async def check() -> None:
        broker = Broker(ManualClock())
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(check_invariants, broker)
            for _ in range(10):
                await wait_all_tasks_blocked()
                clock.jump(CHECK_INTERVAL_S)
            vhost = broker.virtual_hosts["/"]
            vhost.queues.declare("q", client=None, durable=True, arguments={}).events.unacked += 1

    with pytest.raises(ExceptionGroup) as raised:
        trio.run(check, clock=MockClock(autojump_threshold=0))
    assert raised.group_contains(InvariantBroken, match="queue 'q' in vhost '/'")


def test_a_broker_goes_on_whose_engine_is_right(tmp_path: Path) -> None:
    with leveret_serve(tmp_path, "--debug") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            channel.basic_publish("", "q", b"1")
        assert broker.stop() == 0


def test_a_broker_stops_whose_engine_is_wrong(tmp_path: Path) -> None:
    """With the contradiction in its log, and exit code 1."""
    (tmp_path / "definitions.json").write_text('{"queues": [{"vhost": "/", "name": "q", "durable": true}]}')
    (tmp_path / "leveret.toml").write_text('[broker]\ndefinitions = "definitions.json"\n')
    command = [sys.executable, "-c", MISCOUNTING, "serve", "--memory", "--listen", "127.0.0.1:0", "--management", "off"]
    command += ["--config", "leveret.toml"]
    ended = subprocess.run([*command, "--debug"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "a fault of Leveret, please report it; the broker stops" in ended.stderr
    assert "queue 'q' in vhost '/'" in ended.stderr
