"""The auditor's books of a journal, and what is compared when everything rests: see test_books.py."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from history import FakeQueue
from simulated_files import SimulatedFiles
from simulator.accounts import check_accounts, check_consumers, check_journal, check_sums
from simulator.audit import JournalBooks, audit
from simulator.books.whereabouts import Place
from simulator.clients.client import RUNNING
from simulator.disk import DATA
from simulator.ledger import Broken
from simulator.rest import check_alarms, check_credit, check_held

from leveret.amqp_frontend.edge.admission import HalfOpen
from leveret.engine import Broker, EventKind, ManualClock
from leveret.journal.disk.directory import read_format
from leveret.journal.disk.files import replace_file
from leveret.journal.format.heap import Declared, encode_declared, encode_runs
from leveret.journal.format.record import (
    CODE_OF,
    DURABLE,
    ENQUEUED,
    KEPT,
    QUEUE,
    RANGE,
    RESTATED,
    UNDECLARED,
    VHOST,
    Record,
)
from leveret.testing.harness import Harness

ACKED, DROPPED, PURGED = CODE_OF[EventKind.ACKED], CODE_OF[EventKind.DROPPED], CODE_OF[EventKind.PURGED]
Q = 5  # a queue's id, in virtual host 3
READER: Any = SimpleNamespace(
    names=type("Names", (dict,), {"ids_of": lambda self, what: [Q]})({Q: SimpleNamespace(vhost_id=3)})
)


def came(id_: int, *, flags: int = DURABLE) -> Record:
    return Record(ENQUEUED, msg_id=id_, queue_id=Q, flags=flags)


def left(id_: int, kind: int = ACKED, *, flags: int = DURABLE, arg: int = 0, heap: bytes = b"") -> Record:
    return Record(kind, msg_id=id_, queue_id=Q, flags=flags, arg=arg, heap=heap)


def undeclared(what: int, *, queue_id: int = 0, vhost_id: int = 0) -> Record:
    return Record(UNDECLARED, queue_id=queue_id, arg=vhost_id, heap=encode_declared(Declared(what, 0, "", b"")))


def read(*records: Record, counts: bool = True, is_whole: bool = True) -> set[int]:
    """What is in the queue by these records. Raises: Broken."""
    books = JournalBooks(is_whole=is_whole)
    for record in records:
        books.enter(record, counts=counts, reader=READER)
    return books.live.get(Q, set())


THREE = came(1), came(2), came(4)


@pytest.mark.parametrize(
    ("records", "live"),
    [
        ([*THREE, came(5, flags=0)], {1, 2, 4}),
        ([*THREE, left(2)], {1, 4}),
        ([*THREE, left(2, flags=DURABLE | KEPT)], {1, 2, 4}),
        ([*THREE, came(2, flags=DURABLE | RESTATED)], {1, 2, 4}),
        ([*THREE, left(1, PURGED, flags=DURABLE | RANGE, arg=4)], set()),
        ([*THREE, left(1, flags=DURABLE | RANGE, heap=encode_runs([1, 4]))], {2}),
        ([*THREE, left(9, DROPPED)], {1, 2, 4}),
        ([*THREE, undeclared(QUEUE, queue_id=Q)], set()),
        ([*THREE, undeclared(VHOST, vhost_id=3), came(6)], set()),
        ([*THREE, undeclared(VHOST, vhost_id=4)], {1, 2, 4}),
    ],
)
def test_the_auditor_reads_what_is_in_a_queue(records: list[Record], live: set[int]) -> None:
    assert read(*records) == live


@pytest.mark.parametrize(
    ("sentence", "records"),
    [
        ("message 2 enqueued in 5 twice", [*THREE, came(2)]),
        (r"messages \[2\] leave queue 5 twice", [*THREE, left(2), left(2)]),
        (r"messages \[1\] leave queue 5 twice", [*THREE, left(1), left(1, flags=RANGE, heap=encode_runs([1, 2]))]),
        (r"acked of messages \[9\] in queue 5, which never came", [*THREE, left(9)]),
    ],
)
def test_the_auditor_says_no(sentence: str, records: list[Record]) -> None:
    with pytest.raises(Broken, match=sentence):
        read(*records)


@pytest.mark.parametrize("unsaid", ["duplicate ids", "leased queues"])
def test_the_auditor_looks_for_what_programs_must_know(unsaid: str) -> None:
    """Also where another feature came later, and is said alone."""
    harness = Harness('[[address-setting]]\nmatch = "q"\nid-cache-size = 5\n', journal=SimulatedFiles())
    harness.queue("leased", x_queue_type="amps")
    harness.queue("q")
    harness.publish("A", key="q", delivery_mode=2, headers={"_AMQ_DUPL_ID": "one"})
    harness.settle()
    files = harness.files.crash()
    assert {name[1] for name in audit(files)} == {"q"}
    format_ = read_format(DATA, files)
    replace_file(files, DATA, "format", replace(format_, needs=format_.needs - {unsaid}).octets)
    with pytest.raises(Broken, match=f"the journal has \\['{unsaid}'\\], and its file"):
        audit(files)


def test_a_journal_whose_beginning_is_gone_may_end_what_it_does_not_know() -> None:
    assert read(*THREE, left(9), is_whole=False) == {1, 2, 4}


# -- rest -------------------------------------------------------------------------------------------------------------


def client_with(*, held: int = 0, credit: str | None = None, takes: int | None = None) -> Any:
    """A client with a channel that holds so many deliveries of queue a, and would take one more of another.

    `takes`: this message alone; None: any.
    """
    channel = SimpleNamespace(
        held=lambda: {("/", "a"): held}, credit=lambda: credit, consumed="a", takes=lambda id_: takes in (None, id_)
    )
    return SimpleNamespace(number=1, vhost="/", channels={1: channel}, link=SimpleNamespace(unread_by_broker=0))


def place_with(*ready: int, out: int = 0, keeps: bool = False) -> dict[tuple[str, str], Place]:
    queue: Any = FakeQueue("a")
    queue.unacked = out
    place = Place(queue, {"keeps": keeps})
    place.ready = dict.fromkeys(ready)
    return {("/", "a"): place}


def test_what_clients_hold_is_what_is_out() -> None:
    check_held([client_with(held=2), client_with(held=1)], place_with(out=3))
    for out in (2, 4):
        with pytest.raises(Broken, match=f"has {out} out, its clients hold 3"):
            check_held([client_with(held=3)], place_with(out=out))


def test_nobody_is_ready_to_take_what_is_ready() -> None:
    check_credit([client_with(credit="a")], place_with(out=3))
    check_credit([client_with(credit=None)], place_with(1, 2))
    check_credit([client_with(credit="a")], place_with(1, keeps=True))
    check_credit([client_with(credit="another")], place_with(1))
    check_credit([client_with(credit="a", takes=3)], place_with(1, 2))
    with pytest.raises(Broken, match="would take more of a, which has 2 ready"):
        check_credit([client_with(credit="a")], place_with(1, 2))
    with pytest.raises(Broken, match="would take more of a"):
        check_credit([client_with(credit="a", takes=2)], place_with(1, 2))


def test_the_alarm_of_a_full_disk_is_an_alarm() -> None:
    """Whoever was told of it believes that it is blocked until it is over, though nothing of it is held any more."""
    flow = Broker(ManualClock()).flow
    assert not check_alarms(flow, refuses=True) and not check_alarms(flow, refuses=False)
    flow.disk.switch("low on disk")
    assert check_alarms(flow, refuses=True)
    with pytest.raises(Broken, match="the journal takes everything"):
        check_alarms(flow, refuses=False)
    flow.disk.switch(None)
    flow.alarm.switch("maintenance")
    assert check_alarms(flow, refuses=False)


# -- accounts ---------------------------------------------------------------------------------------------------------


def host_with(*, live: int = 0, parked: int = 0, temp: int = 0, **changes: Any) -> Any:
    """A broker with a connection that has parked a publish of seven octets, and half of a message of five."""
    work = SimpleNamespace(location=None, octets=7, messages=2)
    contents = {"count": 1, "octets": 7, "spooled_count": 0, "spooled": 0, "publishes": 2}
    half = SimpleNamespace(octets=5, large=None)
    session = SimpleNamespace(
        backlog=SimpleNamespace(
            parking=SimpleNamespace(
                channels={1: SimpleNamespace(work=[work])}, contents=SimpleNamespace(**{**contents, **changes})
            )
        ),
        connection=SimpleNamespace(
            incomplete=SimpleNamespace(octets=changes.get("incomplete", 5), reserved=0),
            channels=changes.get("channels", {1: SimpleNamespace(assembly=half)}),
        ),
        closing=SimpleNamespace(finished=changes.get("finished", False)),
        login=SimpleNamespace(client=SimpleNamespace(properties={"product": SimpleNamespace(text="one")})),
    )
    endpoint = type("AnEndpoint", (), {"session": session})()
    half_open: HalfOpen[Any] = HalfOpen()
    for one in changes.get("half_open", lambda _: [])(endpoint):
        half_open.enter(one, "o", is_trusted=False, now_ns=0)
    half_open._strangers += changes.get("strangers", 0)
    return SimpleNamespace(
        server=SimpleNamespace(endpoints=[endpoint], admission=SimpleNamespace(half_open=half_open)),
        broker=SimpleNamespace(
            flow=SimpleNamespace(parked=SimpleNamespace(octets=7 + parked, spooled=0)), virtual_hosts={}
        ),
        temp=SimpleNamespace(used=temp, check=lambda: None),
        supervisor=SimpleNamespace(
            recorder=SimpleNamespace(is_behind=False, has_failed=False, takes_nothing=False),
            journal=SimpleNamespace(statistics=lambda: SimpleNamespace(live=live)),
        ),
        disk=SimpleNamespace(is_troubled=False),
    )


CLIENT_WITHOUT: Any = SimpleNamespace(vhost="/", channels={1: None})
CLIENT: Any = SimpleNamespace(product="one", state=RUNNING, waiting=(), channels={1: None}, vhost="/")


def test_what_connections_count_is_what_is_there() -> None:
    check_accounts(host_with(), [CLIENT])
    check_sums(host_with(finished=True, channels={}))  # it is being cleaned up


@pytest.mark.parametrize(("sentence", "changes"), [
    ("octets of what is parked: 8, there are 7", {"octets": 8}),
    ("publishes of what is parked: 1, there are 2", {"publishes": 1}),
    ("9 and 0 octets of half messages", {"incomplete": 9}),
    ("9 and 0 octets of half messages", {"incomplete": 9, "finished": True}),
    ("is logged in, and has a place", {"half_open": lambda endpoint: [endpoint]}),
    ("1 connections that are gone", {"half_open": lambda _: ["gone"]}),
    ("10 and 0 octets are parked by the sum", {"parked": 3}),
    ("1 are of strangers, there are 0", {"strangers": 1}),
    ("4 octets are in the temp store", {"temp": 4}),
])  # fmt: skip
def test_an_account_of_what_is_gone_is_wrong(sentence: str, changes: dict[str, Any]) -> None:
    with pytest.raises(Broken, match=sentence):
        check_accounts(host_with(**changes), [CLIENT])


def test_an_open_connection_without_channels_has_no_half_messages() -> None:
    with pytest.raises(Broken, match="5 and 0 octets of half messages, there are 0, 0"):
        check_sums(host_with(channels={}))


def test_a_client_has_as_many_channels_as_its_connection() -> None:
    with pytest.raises(Broken, match="has 1 channels, its client 2"):
        check_accounts(host_with(), [SimpleNamespace(**{**vars(CLIENT), "channels": {1: None, 2: None}})])


def test_segments_are_kept_for_what_is_there() -> None:
    ledger: Any = SimpleNamespace(recorded_count=lambda: 3)
    check_journal(host_with(live=3), ledger)
    with pytest.raises(Broken, match="segments are kept for 4 messages, 3 are"):
        check_journal(host_with(live=4), ledger)
    check_journal(host_with(live=4), SimpleNamespace(recorded_count=lambda: None))  # type: ignore[arg-type]


def test_consumers_are_those_of_the_clients() -> None:
    place = place_with()
    queue: Any = place["/", "a"].queue
    queue.consumers = []
    check_consumers([CLIENT_WITHOUT], place)
    queue.consumers = [1]
    with pytest.raises(Broken, match="has 1 consumers, its clients know of 0"):
        check_consumers([CLIENT_WITHOUT], place)
    place["/", "a"].features["foreign"] = True
    check_consumers([CLIENT_WITHOUT], place)
