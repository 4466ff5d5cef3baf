"""Configured queues as clients and operators of a real process meet them: at the start, after a reload, by ctl.

The ids are rows of address-settings page 8.2.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess, leveret_serve
from node_forge import leveret
from pika.adapters.blocking_connection import BlockingChannel

#: The examples of seeds 000 and 004; comments are ours.
RING_XML = """\
<core>
<addresses>
<address name="myRing">
<anycast>
<queue name="myRing" ring-size="3" />
</anycast>
</address>
</addresses>
<address-settings>
<address-setting match="ring.#">
<default-ring-size>3</default-ring-size>
</address-setting>
</address-settings>
</core>
"""
HORNETQ_XML = """\
<!-- five seconds before a message comes again -->
<address-setting match="jms.queue.exampleQueue">
<!-- each wait half as long again -->
<redelivery-delay-multiplier>1.5</redelivery-delay-multiplier>
<!-- milliseconds -->
<redelivery-delay>5000</redelivery-delay>
<!-- at most -->
<max-redelivery-delay>50000</max-redelivery-delay>

</address-setting>"""

QUICK = "[broker]\nconfiguration-file-refresh-period = 50\n"


def ring(name: str, size: int) -> str:
    """A configured ring queue."""
    return f'[[address]]\nname = "{name}"\n[[address.queue]]\nname = "{name}"\nring-size = {size}\n'


def rewrite(file: Path, text: str) -> None:
    """As good editors do, so that nobody sees half of it."""
    successor = file.with_name("successor")
    successor.write_text(text)
    successor.rename(file)


def ctl(broker: BrokerProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """One control command."""
    return leveret("ctl", "--url", broker.url, *arguments)


def channel_to(broker: BrokerProcess) -> BlockingChannel:
    """A connection's channel."""
    return pika.BlockingConnection(pika.URLParameters(broker.url)).channel()


def bodies(channel: BlockingChannel, queue: str) -> bytes:
    """All ready bodies; they are gone then."""
    taken = b""
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        taken += body
    return taken


def test_c02_c09_the_seeds_files_are_a_running_broker(tmp_path: Path) -> None:
    """`myRing` is there with ring 3; `exampleQueue` waits 5000 ms x 1.5, though its client asked for nothing."""
    (tmp_path / "ring.xml").write_text(RING_XML)
    (tmp_path / "hornetq.xml").write_text(HORNETQ_XML)
    files = ("--config", str(tmp_path / "ring.xml"), "--config", str(tmp_path / "hornetq.xml"))
    with leveret_serve(tmp_path, *files) as broker:
        channel = channel_to(broker)
        channel.queue_declare("myRing", passive=True)
        channel.queue_declare("myRing", durable=True, arguments={"x-ring-size": 3})
        for body in (b"A", b"B", b"C", b"D", b"E"):
            channel.basic_publish("", "myRing", body)
        assert bodies(channel, "myRing") == b"CDE"
        channel.queue_declare("exampleQueue", durable=True)
        channel.basic_publish("", "exampleQueue", b"m")
        method, _, _ = channel.basic_get("exampleQueue")
        nacked = time.monotonic()
        channel.basic_nack(method.delivery_tag)
        channel.queue_declare("exampleQueue", passive=True)
        (row,) = json.loads(ctl(broker, "--json", "scheduled", "queue=exampleQueue").stdout)
        passed_ms = (time.monotonic() - nacked) * 1000  # however long the command took
        assert 5000 - passed_ms - 1 <= row["due_in_ms"] <= 5000
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.queue_declare("myRing", durable=True)
        assert closed.value.reply_code == 406
        assert "inequivalent arg 'x-ring-size' for queue 'myRing' in vhost '/'" in closed.value.reply_text
        queues = {row["name"]: row["configured"] for row in json.loads(ctl(broker, "--json", "queues").stdout)}
        assert (queues["myRing"], queues["exampleQueue"]) == (True, False)


def test_a_changed_file_is_loaded_once_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    """C11: replaced by rename, invalid, gone, back again; each is told once, the broker goes on."""
    file = tmp_path / "leveret.toml"
    with leveret_serve(tmp_path, config=QUICK + ring("a", 3)) as broker:
        channel = channel_to(broker)
        channel.queue_declare("a", passive=True)
        rewrite(file, QUICK + ring("a", 3) + ring("b", 2))
        broker.wait_for_log(f"configuration reloaded: {file} changed")
        channel.queue_declare("b", passive=True)
        rewrite(file, QUICK + ring("a", 0))
        broker.wait_for_log("nothing was changed")
        channel.queue_declare("b", passive=True)
        file.unlink()
        broker.wait_for_log(f"{file}: cannot be read; what was loaded from it stays in force")
        rewrite(file, QUICK + ring("a", 3) + ring("c", 1))
        broker.wait_for_log("queue 'b' is no longer declared; it stays")
        channel.queue_declare("c", passive=True)
        for told in ("nothing was changed", "cannot be read", "declared; it stays"):
            assert broker.log().count(told) == 1
        assert broker.log().count("configuration reloaded") == 2
        assert broker.stop() == 0


def test_a_forced_deletion_reaches_the_consumer(tmp_path: Path) -> None:
    """config-delete-queues FORCE: basic.cancel goes out although no client did anything."""
    forced = QUICK + '[[address-setting]]\nmatch = "#"\nconfig-delete-queues = "FORCE"\n'
    with leveret_serve(tmp_path, config=forced + ring("a", 3)) as broker:
        channel = channel_to(broker)
        cancelled: list[str] = []
        channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
        tag = channel.basic_consume("a", lambda *_: None)
        channel.basic_publish("", "a", b"never acknowledged")
        channel.queue_declare("a", passive=True)
        rewrite(tmp_path / "leveret.toml", forced)
        channel.connection.process_data_events(time_limit=0)
        broker.wait_for_log("deleted, as config-delete-queues is FORCE; 1 message lost")
        while not cancelled:  # the line is written in the turn that sends the cancel, which may arrive later
            channel.connection.process_data_events(time_limit=1)
        assert cancelled == [tag]
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.queue_declare("a", passive=True)
        assert closed.value.reply_code == 404


def test_the_refresh_period_can_be_off_and_on_again(tmp_path: Path) -> None:
    """-1: only by hand; a reload by hand that sets a period starts the watch."""
    off = "[broker]\nconfiguration-file-refresh-period = -1\n"
    file = tmp_path / "leveret.toml"
    with leveret_serve(tmp_path, config=off) as broker:
        rewrite(file, QUICK)
        reloaded = ctl(broker, "reload")
        assert reloaded.stdout.splitlines()[0] == "reloaded: True"
        assert "changed" not in broker.log()
        rewrite(file, QUICK + ring("a", 1))
        broker.wait_for_log(f"configuration reloaded: {file} changed")


def test_reload_says_what_it_did(tmp_path: Path) -> None:
    """`leveret ctl reload`: what is other than before, and what could not be done."""
    off = "[broker]\nconfiguration-file-refresh-period = -1\n"
    with leveret_serve(tmp_path, config=off + ring("a", 1)) as broker:
        rewrite(tmp_path / "leveret.toml", off + ring("b", 1))
        answer = json.loads(ctl(broker, "--json", "reload").stdout)
        assert answer == {
            "reloaded": True,
            "done": ["created 1 queue of the configuration"],
            "warnings": ["queue 'a' is no longer declared; it stays, as config-delete-queues is OFF"],
        }


def test_what_no_broker_could_declare_is_exit_2(tmp_path: Path) -> None:
    """serve and check say the same, before anything starts."""
    file = tmp_path / "bad.toml"
    file.write_text('[[address]]\nname = "q"\n[[address.queue]]\nname = "q"\narguments = { x-expires = 0 }\n')
    for command in (("serve", "--memory", "--config"), ("check",)):
        done = leveret(*command, str(file))
        assert done.returncode == 2
        assert (done.stdout + done.stderr).startswith(f"{file}:5: x-expires: invalid arg 'x-expires' for queue 'q'")


def test_ctl_explain(tmp_path: Path) -> None:
    """Queue or address by name, with --vhost or without: value, and the file, line and match that gave it."""
    text = ring("q", 3) + '[[vhost]]\nname = "v"\n[[address-setting]]\nmatch = "#"\nredelivery-delay = 100\n'
    with leveret_serve(tmp_path, config=text) as broker:
        file = tmp_path / "leveret.toml"
        shown = ctl(broker, "explain", "q", "--vhost", "/").stdout.splitlines()
        assert shown[0] == f"queue q (address q, vhost /), declared at {file}:3"
        assert shown[1] == "matches, most specific first: #"
        rows = {line.split(" = ")[0].strip(): line.split("  ")[-1].strip() for line in shown[2:]}
        assert rows["redelivery-delay"] == f"{file}:10: match '#'"
        assert rows["default-ring-size"] == f"{file}:5: queue 'q' (x-ring-size)"
        (one,) = json.loads(ctl(broker, "--json", "explain", "q", "vhost=v").stdout)
        assert (one["kind"], one["vhost"]) == ("address", "v")
        for arguments, message in (
            ((), "explain: expected name=NAME"),
            (("q", "--vhost", "none"), "no virtual host 'none'"),
            (("q", "size=3"), "explain: unknown argument 'size'"),
        ):
            refused = ctl(broker, "explain", *arguments)
            assert refused.returncode == 1 and message in refused.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "ring: expected queue=NAME\nusage: ring QUEUE SIZE [vhost=NAME]"),
        (("none", "3"), "no queue 'none' in virtual host '/'"),
        (("q", "3", "--vhost", "none"), "no virtual host 'none'"),
        (("q",), "ring: expected size=NUMBER"),
        (("q", "0"), "size must be -1 or a number from 1, not '0'"),
        (("q", "-2"), "size must be a number, not '-2'"),
        (("q", "many"), "size must be a number, not 'many'"),
        (("q", "3", "delay=3"), "ring: unknown argument 'delay'"),
        (
            ("long", "3"),
            "queue 'long' cannot be a ring: x-ring-size: contradicts x-max-length, expected one of the two",
        ),
    ],
)
def test_ctl_ring_refuses(one_broker: BrokerProcess, arguments: tuple[str, ...], message: str) -> None:
    """One clear sentence, exit 1."""
    done = ctl(one_broker, "ring", *arguments)
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all refusals."""
    with leveret_serve(tmp_path_factory.mktemp("ring"), config=ring("q", 3)) as broker:
        channel_to(broker).queue_declare("long", arguments={"x-max-length": 5})
        yield broker


def test_ctl_ring_resizes(tmp_path: Path) -> None:
    """Larger, none at all, smaller; clients still declare the queue as they did."""
    with leveret_serve(tmp_path, config=ring("q", 2)) as broker:
        channel = channel_to(broker)

        def publish(*sent: bytes) -> None:
            for body in sent:
                channel.basic_publish("", "q", body)

        publish(b"A", b"B", b"C")
        assert json.loads(ctl(broker, "--json", "ring", "q", "3").stdout) == {
            "queue": "q",
            "vhost": "/",
            "ring_size": 3,
        }
        publish(b"D", b"E")
        channel.queue_declare("q", durable=True, arguments={"x-ring-size": 2})
        assert bodies(channel, "q") == b"CDE"
        assert ctl(broker, "ring", "q", "-1").returncode == 0
        publish(b"A", b"B", b"C", b"D")
        assert bodies(channel, "q") == b"ABCD"
        (one,) = json.loads(ctl(broker, "--json", "explain", "q").stdout)
        (row,) = [row for row in one["rows"] if row["name"] == "default-ring-size"]
        assert row["value"] == -1 and row["rule"].startswith("as declared or resized; a queue declared now")
