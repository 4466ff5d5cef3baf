"""The ten tasks of an operator's night by `leveret ctl` alone, as text that is read at a terminal.

`tests/console/test_operators_night.py` has the page's. Source: management page 15, 16.
"""

import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from night_clients import ACME, DEAD, MISSED, SETTINGS, Clients

from leveret.__main__ import main
from leveret.cli import ctl_command
from leveret.testing import RunningBroker, start_broker

Ctl = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """On virtual time: a night is over in seconds."""
    with start_broker(clock="virtual", config={"address-setting": [SETTINGS]}) as running:
        yield running


@pytest.fixture(scope="module")
def clients(broker: RunningBroker) -> Iterator[Clients]:
    """The night begins."""
    one = Clients(broker)
    one.fall_ill()
    one.sleep("sleeper")
    broker.clock.advance(minutes=20)
    one.sleep("waker")
    one.fill()
    yield one
    one.close()


@pytest.fixture
def ctl(broker: RunningBroker, clients: Clients, capsys: pytest.CaptureFixture[str]) -> Ctl:
    """What `leveret ctl` prints; it must go well."""

    def run(*words: str) -> str:
        assert main(["ctl", "--url", broker.url, *words]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def row(text: str, name: str) -> str:
    """The line of a table that begins with this name."""
    return next(line.strip() for line in text.splitlines() if line.strip().startswith(f"{name} "))


def test_which_queue_grows(ctl: Ctl, clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Two looks of --watch have rates; the only queue with one is it. With a console `growing` names it."""
    pauses = 0

    def sleep(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        clients.publish("mails", 10)
        if pauses == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(ctl_command, "time", SimpleNamespace(sleep=sleep))
    head, *rows = ctl("--watch", "1", "queues").split("  queues\n")[-1].splitlines()
    column = head.index("in/s")
    assert [line.split()[0] for line in rows if float(line[column:].split()[0]) > 0] == ["mails"]


def test_who_publishes_there(ctl: Ctl) -> None:
    """2. By the name that the client gives itself."""
    assert "shop" in ctl("publishers", "mails")


def test_which_consumer_has_a_message_the_longest(ctl: Ctl) -> None:
    """3. The first of them; since when, and which message."""
    heads = ctl("unacknowledged").split("items: \n")[1].splitlines()
    assert [line.split()[0] for line in heads] == ["connection_name", "sleeper", "waker"]
    assert re.search(
        r"invoices +1 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +sleeper", row(ctl("consumers", "queue=invoices"), "sleeper")
    )
    assert re.search(r"\binvoices +sleeper +1 +\d+ +invoices +7\b", ctl("connection", "sleeper"))


def test_it_is_ended(ctl: Ctl, broker: RunningBroker) -> None:
    """4. What that takes is said before; its message is ready again."""
    assert "1 unacknowledged message" in ctl("preview", "connection", "sleeper")
    ctl("close-connection", "sleeper", "reason=slept too long")
    broker.clock.advance(seconds=0)
    assert re.search(r"^invoices +1 +1 ", row(ctl("queues"), "invoices"))


def test_why_a_publisher_is_blocked(ctl: Ctl) -> None:
    """5. In the first line of the status; who it is, and which limit."""
    status = ctl("status")
    assert status.startswith("NOT WELL: limits are reached: max-size-messages of address 'archive'")
    assert "max-size-messages" in row(status, "archivist")
    assert "max-size-messages" in row(ctl("blocked"), "archivist")


def test_room_is_made(ctl: Ctl, broker: RunningBroker) -> None:
    """6. What a purge drops is said before; then nobody waits."""
    assert "2 messages are deleted (2 ready, 0 scheduled)" in ctl("preview", "queue", "archive")
    ctl("purge", "archive")
    broker.clock.advance(seconds=0)
    assert "blocked: none" in ctl("status") and re.search(r"^archive +1 ", row(ctl("queues"), "archive"))


def test_where_a_message_is(ctl: Ctl) -> None:
    """7. By the id that somebody tells on the telephone."""
    assert re.search(r"^orders\.dead +ready ", row(ctl("where", MISSED), "orders.dead"))


def test_of_what_letters_died(ctl: Ctl) -> None:
    """8. All of them, by cause and origin."""
    assert re.search(rf"^orders\.dead +expired +orders +{DEAD} ", row(ctl("dead-letters"), "orders.dead"))


def test_those_of_one_customer_go_back(ctl: Ctl, broker: RunningBroker) -> None:
    """9. After a dry run, ten a second."""
    choice = ("replay", "orders.dead", "filter=/customer = 'acme'")
    dry = ctl(*choice, "dry-run=true")
    assert f"matched: {ACME}\n" in dry and re.search(rf"queue orders +{ACME}\n", dry)
    assert re.search(r"^orders +0 ", row(ctl("queues"), "orders"))
    ctl(*choice, "rate=10")
    for _ in range(5):
        broker.clock.advance(seconds=1)
    jobs = ctl("jobs")
    assert re.search(rf"\b{ACME}\b", jobs) and "done" in jobs
    assert re.search(rf"^orders +{ACME} ", row(ctl("queues"), "orders"))


def test_a_bad_policy_is_put_back(ctl: Ctl, broker: RunningBroker, clients: Clients) -> None:
    """10. What it would drop is said before; who set it is known; and it is as before."""
    assert "dropped: 20" in ctl("preview", "policy", "oops", "^mails$", '{"max-length": 10}')
    ctl("policies", "set", "oops", "^mails$", '{"max-length": 10}')
    broker.clock.advance(seconds=0)
    assert re.search(r"^mails +10 ", row(ctl("queues"), "mails"))
    version = row(ctl("versions", "list"), "oops")
    assert "guest by ctl" in version and "policies set" in version and '"pattern"' in version
    ctl("versions", "restore", version.split()[1])
    assert ctl("policies", "list") == "none\n"
    clients.publish("mails", 20)
    assert re.search(r"^mails +30 ", row(ctl("queues"), "mails"))
