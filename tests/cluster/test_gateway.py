"""What the gateway's client makes of answers, and of none: done, surely not done, in doubt."""

import errno
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing

from leveret.cluster.agreement.view import (
    AGREED,
    LEADER,
    PREFERRED,
    AgreedKey,
    Leader,
    NodeKey,
    Purpose,
    Transaction,
    View,
)
from leveret.cluster.coordinator import etcd
from leveret.cluster.coordinator.coordinator import Lease
from leveret.cluster.coordinator.errors import CoordinatorError, InDoubt, UnfitCoordinator, Unreachable
from leveret.cluster.coordinator.etcd import EtcdCoordinator, _Watch
from leveret.cluster.coordinator.gateway import EtcdAccess, Gateway, Refused, octets64, why_refused
from leveret.cluster.resolver import Found, Resolver
from leveret.interop.wire.loopback import free_ports

#: (request line and body) -> what is sent back; None: nothing, the connection stays; b"": the connection is closed.
Answers = Callable[[str, bytes], bytes | None]


def test_an_etcd_that_is_not_reached_is_told_once_and_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """At once, with the address and the error: a node without etcd seems to do nothing."""
    (port,) = free_ports(1)
    coordinator = EtcdCoordinator(EtcdAccess((f"http://127.0.0.1:{port}",)), "t")
    with caplog.at_level("INFO", "leveret.cluster"):
        for _ in range(2):
            with pytest.raises(Unreachable) as error:
                coordinator.view_from(coordinator.new_gateway())
            coordinator.note_trouble(f"etcd is not reached: {error.value}")
        assert coordinator.trouble == f"etcd is not reached: http://127.0.0.1:{port}: Connection refused"
        coordinator.note_trouble("")
        coordinator.note_trouble("")
    assert [one.getMessage() for one in caplog.records] == [
        f"etcd is not reached: http://127.0.0.1:{port}: Connection refused",
        "etcd answers again",
    ]


def http(status: int, body: bytes) -> bytes:
    """A whole answer."""
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


class Member:
    """Something that is reached as a member of etcd is. `requests`: those that came, whole or not."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.version = b'{"etcdserver":"3.5.12","etcdcluster":"3.5.0"}'
        self.slow: dict[str, float] = {}  # path -> seconds until the answer
        self.requests: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(stream)
            threading.Thread(target=self._serve, args=(stream,), daemon=True).start()

    def _serve(self, stream: socket.socket) -> None:
        with suppress(OSError):  # closed by the test
            self._serve_all(stream)

    def _serve_all(self, stream: socket.socket) -> None:
        received = b""
        while data := stream.recv(65536):
            received += data
            head, end, body = received.partition(b"\r\n\r\n")
            length = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0)
            if not end or len(body) < length:
                continue
            received = b""
            path = head.split(b" ")[1].decode()
            self.requests.append(path)
            threading.Event().wait(self.slow.get(path, 0))
            answer = http(200, self.version) if path == "/version" else self._answers(path, body)
            if answer == b"":
                stream.shutdown(socket.SHUT_RDWR)
                return
            if answer is not None:
                stream.sendall(answer)


@contextmanager
def gateway_of(*answers: Answers, dead_first: int = 0, user: str = "") -> Iterator[tuple[Gateway, list[Member]]]:
    """A client of such members; before them some where nobody listens."""
    members = [Member(one) for one in answers]
    urls = (*(f"http://127.0.0.1:{port}" for port in free_ports(dead_first)), *(member.url for member in members))
    # One that never answers is waited for in vain; where there is none, a busy machine may take its time.
    access = EtcdAccess(urls, user, "secret", connect_seconds=60, answer_seconds=1.0 if never in answers else 60)
    try:
        with closing(Gateway(access)) as gateway:
            yield gateway, members
    finally:
        for member in members:
            member.close()


def well(path: str, body: bytes) -> bytes:
    """An answer."""
    return http(200, b'{"header":{"revision":"7"}}')


def never(path: str, body: bytes) -> None:
    """A member that was stopped, or is cut off behind its socket."""


def closing_it(path: str, body: bytes) -> bytes:
    """A member that is killed before it answers."""
    return b""


def saying(status: int, **fields: object) -> Answers:
    """An error of etcd."""
    return lambda path, body: http(status, json.dumps(fields).encode())


NO_LEADER = saying(503, error="etcdserver: request timed out", code=14)
COMPACTED = saying(400, error="etcdserver: mvcc: required revision has been compacted", code=11)


@pytest.mark.parametrize(
    "answers",
    [never, closing_it, NO_LEADER, saying(500, error="unknown", code=2), lambda path, body: http(200, b"<html>")],
)
def test_a_change_without_an_answer_is_in_doubt(answers: Answers) -> None:
    """And is sent to no other member; a read is, and has its answer."""
    with gateway_of(answers, well) as (gateway, members):
        with pytest.raises(InDoubt, match=members[0].url):
            gateway.change("/v3/kv/txn", {})
        assert (members[0].requests, members[1].requests) == (["/version", "/v3/kv/txn"], [])
        assert gateway.last_sent_ns == 0
    with gateway_of(answers, well) as (gateway, members):
        assert gateway.read("/v3/kv/range", {})["header"]["revision"] == "7"
        assert gateway.last_sent_ns > 0


def test_a_change_that_was_not_sent_goes_to_the_next_member() -> None:
    """And to that one first from then on."""
    with gateway_of(well, dead_first=2) as (gateway, members):
        gateway.change("/v3/kv/txn", {})
        gateway.change("/v3/kv/txn", {})
        assert members[0].requests == ["/version", "/v3/kv/txn", "/v3/kv/txn"]


def test_nothing_is_sent_when_no_member_is_reached() -> None:
    """All are named, with why."""
    with gateway_of(dead_first=2) as (gateway, _):
        for ask in (gateway.read, gateway.change):
            with pytest.raises(Unreachable, match=r"http://127.*refused; http://127.*refused"):
                ask("/v3/kv/txn", {})


def test_what_etcd_refuses_is_surely_not_done() -> None:
    """Its code and words; no other member is asked."""
    with gateway_of(COMPACTED, well) as (gateway, members):
        with pytest.raises(Refused, match="compacted") as refused:
            gateway.change("/v3/kv/txn", {})
        assert refused.value.code == 11
        assert members[1].requests == []


def test_a_connection_that_was_closed_meanwhile_is_no_doubt() -> None:
    """It is seen before the next request is sent on it."""
    with gateway_of(well) as (gateway, members):
        gateway.change("/v3/kv/txn", {})
        for one in members[0]._open:
            one.shutdown(socket.SHUT_RDWR)
        gateway.change("/v3/kv/txn", {})
        assert members[0].requests == ["/version", "/v3/kv/txn"] * 2


def test_aborted_while_it_waits() -> None:
    """By another thread: the answer is in doubt, and nothing is sent any more."""
    came = threading.Event()

    def answers(path: str, body: bytes) -> None:
        came.set()

    with gateway_of(answers) as (gateway, members):
        found: list[CoordinatorError] = []

        def change() -> None:
            try:
                gateway.change("/v3/kv/txn", {}, answer_seconds=60)
            except CoordinatorError as error:
                found.append(error)

        waiting = threading.Thread(target=change)
        waiting.start()
        came.wait()
        gateway.abort()
        waiting.join()
        assert isinstance(found[0], InDoubt)
        with pytest.raises(Unreachable, match="this node is shutting down"):
            gateway.read("/v3/kv/range", {})
        assert members[0].requests == ["/version", "/v3/kv/txn"]


def test_a_gateway_that_is_switched_off_is_named() -> None:
    """With a configuration file, etcd 3.4 has it off unless it is said."""
    with gateway_of(lambda path, body: http(404, b"404 page not found\n")) as (gateway, _):
        for ask in (gateway.read, gateway.change):
            with pytest.raises(UnfitCoordinator, match="it needs `enable-grpc-gateway: true`"):
                ask("/v3/kv/range", {})


def test_a_stream_ends_when_it_is_silent_and_its_reader_says_so() -> None:
    """Each line is an answer; then the next member is asked."""
    lines = b'{"result":{"created":true}}\n{"result":{"events":[]}}\n'
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(lines), lines)
    with gateway_of(lambda path, body: chunks, well) as (gateway, members):
        found, patience = [], [False, True, True]
        with pytest.raises(Unreachable, match="no answer in time"):
            for answer in gateway.stream("/v3/watch", {}, 0.1, patience.pop):
                found.append(answer)
        assert found == [{"created": True}, {"events": []}] and patience == []
        gateway.read("/v3/kv/range", {})
        assert members[1].requests == ["/version", "/v3/kv/range"]


class SilentEtcd:
    """Members whose watches tell nothing. `lsn`: of the key `agreed`; `dead`: members that answer no more."""

    def __init__(self) -> None:
        self.lsn = 1
        self.dead: set[int] = set()

    def answers(self, member: int) -> Answers:
        """Those of one of them."""

        def answer(path: str, body: bytes) -> bytes:
            if member in self.dead:
                return b""
            if path == "/v3/watch":
                line = b'{"result":{"created":true}}\n'
                return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line)
            pair = {
                "key": octets64(b"/leveret/t/0/agreed"),
                "value": octets64(b'{"term":1,"lsn":%d}' % self.lsn),
                "mod_revision": str(self.lsn),
            }
            return http(200, json.dumps({"header": {"revision": str(self.lsn)}, "kvs": [pair]}).encode())

        return answer


def test_a_silent_watch_is_kept_while_its_member_knows_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys are read again and again, as etcd may know more; a watch that missed a change begins anew, at once."""
    monkeypatch.setattr(etcd, "SILENCE_SECONDS", 0.2)  # also the time in which a watch has to begin
    monkeypatch.setattr(etcd, "SILENCES_MAX", 10**6)
    servers = SilentEtcd()
    with gateway_of(*map(servers.answers, range(2))) as (gateway, members):

        def watches() -> list[int]:
            return [member.requests.count("/v3/watch") for member in members]

        async def main() -> None:
            told: list[View] = []
            has_heard = trio.Event()

            def hear(view: View, asked_ns: int) -> None:
                told.append(view)
                has_heard.set()

            async def until(fact: Callable[[], bool]) -> None:
                nonlocal has_heard
                with trio.fail_after(60):
                    while not fact():
                        has_heard = trio.Event()
                        await has_heard.wait()

            async with trio.open_nursery() as nursery:
                coordinator = EtcdCoordinator(gateway.access, "t")
                nursery.start_soon(coordinator.watch, hear)
                await until(lambda: len(told) > 5)
                assert watches() == [1, 0]
                servers.lsn = 2
                await until(lambda: watches() == [2, 0])
                assert told[-1].agreed == AgreedKey(1, 2, 2)
                servers.dead.add(0)
                await until(lambda: watches() == [2, 1])
                before = len(told)
                await until(lambda: len(told) > before + 5)
                assert watches() == [2, 1]
                monkeypatch.setattr(etcd, "SILENCES_MAX", 1)
                await until(lambda: watches()[1] > 3)
                nursery.cancel_scope.cancel()

        trio.run(main)


def test_a_login_that_etcd_forgot_is_done_again() -> None:
    """The password is sent for a new token, and the request once more."""
    tokens = iter(["one", "two"])
    is_old = True

    def answers(path: str, body: bytes) -> bytes:
        nonlocal is_old
        if path == "/v3/auth/authenticate":
            assert json.loads(body) == {"name": "leveret", "password": "secret"}
            return http(200, json.dumps({"token": next(tokens)}).encode())
        if is_old:
            is_old = False
            return http(401, b'{"error":"etcdserver: invalid auth token","code":16}')
        return well(path, body)

    with gateway_of(answers, user="leveret") as (gateway, members):
        gateway.change("/v3/kv/txn", {})
        login = "/v3/auth/authenticate"
        assert members[0].requests == ["/version", login, "/v3/kv/txn", login, "/v3/kv/txn"]


@pytest.mark.parametrize(
    "version, why",
    [
        ("3.4.22", ""),
        ("3.4.23", ""),
        ("3.4.21", "too old"),
        ("3.3.27", "too old"),
        ("3.5.0", "can lose its consistency"),
        ("3.5.5", "can lose its consistency"),
        ("3.5.6", ""),
        ("3.6.0-rc.1", ""),
        ("", "this is not etcd"),
    ],
)
def test_versions(version: str, why: str) -> None:
    """By their number; source: etcd's announcements of the faults of 3.5.0 to 3.5.5."""
    assert why in why_refused(version) and bool(why) == bool(why_refused(version))


def test_a_member_of_a_refused_version_is_not_used() -> None:
    """It is for an operator to change, not a member that is down."""
    with gateway_of(well) as (gateway, members):
        members[0].version = b'{"etcdserver":"3.5.3"}'
        with pytest.raises(UnfitCoordinator, match=f"etcd at {members[0].url}: version 3.5.3 can lose its consistency"):
            gateway.read("/v3/kv/range", {})
        assert members[0].requests == ["/version"]


ODD_JSON = (
    b"[]", b"{}", b"3", b'{"header":{}}', b'{"header":{"revision":"x"}}', b'{"header":{"revision":"1"},"kvs":7}',
    b'{"header":{"revision":"1"},"kvs":[{}]}', b'{"header":{"revision":"1"},"kvs":[{"key":"***","value":"*"}]}',
    b'{"header":[1],"responses":[]}', b'{"responses":[{"response_range":[]}],"header":{"revision":[]}}',
    b"[" * 100_000, b'{"a":' * 100_000, b'{"ID":{}}', b'{"result":[]}', b'{"result":{"TTL":[]}}', b"\xff\xfe", b"",
    b'{"error":[],"code":[]}', b"<html><body>Sign in</body></html>", b"x" * 5_000_000,
)  # fmt: skip


@pytest.mark.parametrize("body", ODD_JSON, ids=lambda body: body[:24].decode(errors="replace"))
@pytest.mark.parametrize("status", [200, 301, 500])
def test_whatever_answers_ends_no_node(status: int, body: bytes) -> None:
    """A proxy's page, JSON of something else: each verb ends with an error of the coordinator, or a refused request.

    A transaction that was sent is in doubt: something has it.
    """

    def answers(path: str, request: bytes) -> bytes:
        if path == "/v3/lease/grant" and status == 200:
            return http(200, b'{"ID":"5"}')
        return http(status, body)

    with gateway_of(answers) as (gateway, members):
        coordinator = EtcdCoordinator(gateway.access, "t")
        with pytest.raises(CoordinatorError):
            coordinator.view_from(gateway)
        with pytest.raises(InDoubt):
            coordinator._transact(gateway, Transaction(Purpose.PROGRESS, (), ((AGREED, AgreedKey(1, 1)),)))
        assert not coordinator._renew(gateway, Lease.NODE, "5")
        watch = _Watch(coordinator, lambda view, asked_ns: None)
        watch._view = View(1)
        watch._listen()
    assert "/v3/watch" in members[0].requests


FULL = b'{"code":8,"message":"etcdserver: mvcc: database space exceeded"}'


@pytest.mark.parametrize("work", [0, 1, 2, 3])
def test_an_etcd_without_space_ends_no_node(work: int) -> None:
    """It reads, and refuses each lease: a node that starts, campaigns or hands over says so, and tries again."""
    leader = Leader(1, b"a" * 16, "a", "a:1")
    transactions = [
        Transaction(Purpose.CAMPAIGN, (), ((LEADER, leader),)),
        Transaction(Purpose.HAND_OVER, (), ((PREFERRED, b"b" * 16),)),
    ]
    with gateway_of(lambda path, request: http(429, FULL)) as (gateway, _):
        coordinator = EtcdCoordinator(gateway.access, "t")
        with pytest.raises(UnfitCoordinator, match="database space exceeded"):
            if work < 2:
                coordinator._transact(gateway, transactions[work])
            elif work == 2:
                coordinator._register(gateway, NodeKey("a", b"a" * 16, "a:1"))
            else:
                coordinator.view_from(gateway)


@pytest.mark.parametrize("slow", ["/version", "/v3/kv/txn"])
def test_an_etcd_that_always_answers_late_is_answered_in_the_end(slow: str) -> None:
    """On a full machine each answer takes longer than usual. If each were given up, no node would ever lead."""
    members = [Member(well) for _ in range(3)]
    for member in members:
        member.slow[slow] = 0.3
    access = EtcdAccess(tuple(one.url for one in members), connect_seconds=60, answer_seconds=0.1)
    for name in ("read", "change"):
        with closing(Gateway(access)) as gateway:
            for _ in range(30):
                with suppress(Unreachable, InDoubt):
                    getattr(gateway, name)("/v3/kv/txn", {})
                    break
            else:
                raise AssertionError([one.requests for one in members])
    for member in members:
        member.close()


def test_an_answer_octet_by_octet_has_an_end() -> None:
    """Head, or body: the time is that of the whole answer, not of each octet."""
    for answer in (http(200, b"{" + b" " * 1000 + b"}"), b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000):
        stop = threading.Event()

        def drips(stream: socket.socket, answer: bytes = answer, stop: threading.Event = stop) -> None:
            with suppress(OSError):
                stream.recv(65536)
                stream.sendall(http(200, b'{"etcdserver":"3.5.12"}'))
                stream.recv(65536)
                for octet in answer:
                    stream.sendall(bytes([octet]))
                    if stop.wait(0.05):
                        return

        with socket.create_server(("127.0.0.1", 0)) as listener:

            def serve(listener: socket.socket = listener, drips: Callable[[socket.socket], None] = drips) -> None:
                with listener.accept()[0] as stream:
                    drips(stream)

            thread = threading.Thread(target=serve)
            thread.start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            access = EtcdAccess((url,), connect_seconds=60, answer_seconds=60)
            with closing(Gateway(access)) as gateway, pytest.raises(InDoubt, match="no answer in time"):
                gateway.change("/v3/kv/txn", {}, answer_seconds=0.5)
            stop.set()
            thread.join()


@pytest.mark.parametrize("token", [b"7", b'"a\\r\\nX: y"', b'"\\u20ac"', b"null"])
def test_a_token_that_is_none(token: bytes) -> None:
    """It is not put into a head, where it could be more than a token."""
    with gateway_of(lambda path, body: http(200, b'{"token":%s}' % token), user="leveret") as (gateway, members):
        with pytest.raises(Unreachable, match="no token"):
            gateway.read("/v3/kv/range", {})
        assert members[0].requests == ["/version", "/v3/auth/authenticate"]


def test_etcd_is_reached_on_a_system_without_the_family_of_its_first_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` has ::1 in many files of hosts, also where IPv6 is switched off."""
    make = socket.socket

    def refuse(family: int, *more: int, **named: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return make(family, *more, **named)

    with gateway_of(well) as (_, (member,)):
        port = int(member.url.rpartition(":")[2])
        places: list[Found] = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        resolver = Resolver(lambda host, port, **how: places)
        access = EtcdAccess((f"http://etcd.example:{port}",), connect_seconds=60, answer_seconds=60, resolver=resolver)
        with closing(Gateway(access)) as gateway, monkeypatch.context() as patches:
            patches.setattr(socket, "socket", refuse)
            assert gateway.read("/v3/kv/range", {}) == {"header": {"revision": "7"}}


def test_a_lease_that_was_given_up_is_not_renewed_though_etcd_was_not_reached() -> None:
    """Else its key would stay for ever: nobody could lead after a leader that resigned while etcd was away."""
    (port,) = free_ports(1)
    coordinator = EtcdCoordinator(EtcdAccess((f"http://127.0.0.1:{port}",)), "t")
    coordinator._leases = {Lease.LEADER: "7", Lease.NODE: "8"}
    asked: set[Lease] = set()
    is_asked = threading.Event()

    def may_renew(lease: Lease) -> bool:
        asked.add(lease)
        is_asked.set()
        return False

    async def main() -> None:
        with pytest.raises(Unreachable):
            await coordinator.end_lease(Lease.LEADER)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(coordinator.keep_leases, may_renew, print)
            await trio.to_thread.run_sync(is_asked.wait, 60)
            await trio.testing.wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert asked == {Lease.NODE}


def test_a_member_that_hangs_makes_requests_patient_only_until_another_has_answered() -> None:
    """Else a member that hangs next would be waited for four times as long, and so would an election."""
    with gateway_of(never, well) as (gateway, _):
        gateway.read("/v3/kv/range", {})
        assert gateway._patient(1.0) == 1.0


def test_the_end_of_an_earlier_lease_does_not_end_the_next_one() -> None:
    """The answer to its last renewal comes when this node leads again, under another lease."""

    def over(path: str, body: bytes) -> bytes:
        return http(200, b'{"result":{"ID":"7","TTL":"0"}}')

    with gateway_of(over) as (gateway, _):
        coordinator = EtcdCoordinator(gateway.access, "t")
        coordinator._leases = {Lease.LEADER: "9"}
        assert not coordinator._renew(gateway, Lease.LEADER, "7")
        assert coordinator._leases == {Lease.LEADER: "9"}
        assert not coordinator._renew(gateway, Lease.LEADER, "9")
        assert coordinator._leases == {}


def test_a_request_that_was_given_up_does_not_stop_the_next_one() -> None:
    """A node that stops gives up one lease after the other, each within a second."""

    def hanging(path: str, body: bytes) -> bytes | None:
        return None if b'"7"' in body else http(200, b'{"header":{"revision":"7"}}')

    with gateway_of(hanging) as (gateway, (member,)):

        async def main() -> None:
            coordinator = EtcdCoordinator(gateway.access, "t")
            coordinator._leases = {Lease.LEADER: "7", Lease.NODE: "8"}
            with trio.move_on_after(0.3) as asking:
                await coordinator.end_lease(Lease.LEADER)
            assert asking.cancelled_caught
            await coordinator.end_lease(Lease.NODE)

        trio.run(main)
        assert "/v3/lease/revoke" in member.requests
