"""A real etcd that is restarted, killed, stopped, compacted, with users and with TLS."""

import signal
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
from certificates import Authority
from etcd_servers import ETCD, WHY_NOT, EtcdServers, etcd_servers

from leveret.cluster.agreement.view import AGREED, AgreedKey, NodeKey, Purpose, Transaction, View
from leveret.cluster.coordinator.coordinator import Lease
from leveret.cluster.coordinator.errors import InDoubt, UnfitCoordinator, Unreachable
from leveret.cluster.coordinator.etcd import EtcdCoordinator
from leveret.cluster.coordinator.gateway import EtcdAccess, Gateway, octets64

pytestmark = pytest.mark.skipif(ETCD is None, reason=WHY_NOT)

NODE = NodeKey("a", b"\xaa" * 16, "127.0.0.1:1")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServers]:
    """Three members, all running before and after each test."""
    with etcd_servers(tmp_path_factory.mktemp("three"), 3) as servers:
        yield servers


def progress(lsn: int) -> Transaction:
    """One that is always done."""
    return Transaction(Purpose.PROGRESS, (), ((AGREED, AgreedKey(1, lsn)),))


def patient(servers: EtcdServers, **fields: object) -> EtcdAccess:
    """Members that a busy machine makes slow do not count as silent."""
    return EtcdAccess(servers.endpoints, **{"connect_seconds": 60, "answer_seconds": 60, **fields})  # type: ignore[arg-type]


async def change_until_done(coordinator: EtcdCoordinator, lsn: int) -> None:
    """While etcd elects a leader, a change is in doubt: it is sent again, since this one may be done twice."""
    while True:
        try:
            await coordinator.transact(progress(lsn))
            return
        except (InDoubt, Unreachable):
            continue


def test_a_member_that_is_killed_is_passed_by(three: EtcdServers) -> None:
    """By every verb: each of the members once, the leader among them; then it goes on with its data."""

    async def main() -> None:
        coordinator = EtcdCoordinator(patient(three), "killed", 2)
        told: list[View] = []
        async with trio.open_nursery() as nursery:
            assert await coordinator.register(NODE)
            nursery.start_soon(coordinator.keep_leases, lambda lease: True, lambda lease, asked_ns: None)
            nursery.start_soon(coordinator.watch, lambda view, asked_ns: told.append(view))
            for member in range(3):
                await trio.to_thread.run_sync(three.kill, member)
                await change_until_done(coordinator, member)
                view = await coordinator.read()
                assert view.agreed.lsn == member
                while not told or told[-1].agreed != view.agreed:
                    await trio.testing.wait_all_tasks_blocked(0.05)
                three.start(member)
                await trio.to_thread.run_sync(three.await_answer, member)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_member_that_hangs_leaves_a_change_in_doubt(three: EtcdServers) -> None:
    """It may be done later; a read of another member says what is there; the next change goes elsewhere."""

    async def main() -> None:
        coordinator = EtcdCoordinator(EtcdAccess(three.endpoints, connect_seconds=5, answer_seconds=5), "hangs")
        calm = EtcdCoordinator(EtcdAccess(three.endpoints[1:], connect_seconds=60, answer_seconds=60), "hangs")
        await coordinator.transact(progress(1))
        three.signal(0, signal.SIGSTOP)
        try:
            with pytest.raises(InDoubt, match=three.endpoints[0]):
                await coordinator.transact(progress(2))
            await change_until_done(coordinator, 3)
            assert (await calm.read()).agreed.lsn == 3
        finally:
            three.signal(0, signal.SIGCONT)

    trio.run(main)


def test_without_a_majority_nothing_is_answered(three: EtcdServers) -> None:
    """A member alone answers no read: it could be an old one."""

    async def main() -> None:
        coordinator = EtcdCoordinator(EtcdAccess(three.endpoints, answer_seconds=0.5), "minority")
        await change_until_done(coordinator, 1)
        for member in (0, 1):
            three.kill(member)
        with pytest.raises(Unreachable):
            await coordinator.read()
        with pytest.raises((InDoubt, Unreachable)):
            await coordinator.transact(progress(2))
        for member in (0, 1):
            three.start(member)
        for member in range(3):
            await trio.to_thread.run_sync(three.await_answer, member)
        await change_until_done(coordinator, 3)
        assert (await EtcdCoordinator(patient(three), "minority").read()).agreed.lsn == 3

    trio.run(main)


def test_all_members_restarted(three: EtcdServers) -> None:
    """Keys and revisions are there; a lease that ended meanwhile is granted anew by the next registration."""

    async def main() -> None:
        coordinator = EtcdCoordinator(patient(three), "restarted", 2)
        await coordinator.transact(progress(5))
        assert await coordinator.register(NODE)
        before = await coordinator.read()
        for member in range(3):
            three.kill(member)
        for member in range(3):
            three.start(member)
        for member in range(3):
            await trio.to_thread.run_sync(three.await_answer, member)
        after = await coordinator.read()
        assert after.agreed == before.agreed and after.revision >= before.revision
        async with trio.open_nursery() as nursery:
            await coordinator.end_lease(Lease.NODE)
            assert (await coordinator.read()).nodes == ()
            assert await coordinator.register(NODE)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_cancelled_request_leaves_a_coordinator_that_works(three: EtcdServers) -> None:
    """The thread that waits is left alone, with its connection."""

    async def main() -> None:
        coordinator = EtcdCoordinator(EtcdAccess(three.endpoints[:1], answer_seconds=60), "cancelled")
        await coordinator.read()
        three.signal(0, signal.SIGSTOP)
        try:
            with trio.move_on_after(0.2) as scope:
                await coordinator.read()
            assert scope.cancelled_caught
        finally:
            three.signal(0, signal.SIGCONT)
        await coordinator.read()

    trio.run(main)


def test_a_watch_from_a_revision_that_was_compacted_says_so(tmp_path: Path) -> None:
    """It ends with the oldest revision that there is, in place of hanging."""
    with etcd_servers(tmp_path) as servers, closing(Gateway(patient(servers))) as gateway:
        for _ in range(5):
            gateway.change("/v3/kv/put", {"key": octets64(b"k"), "value": octets64(b"v")})
        gateway.change("/v3/kv/compaction", {"revision": "5"})
        with closing(Gateway(patient(servers))) as listening:
            request = {"create_request": {"key": octets64(b"k"), "start_revision": "2"}}
            answers = listening.stream("/v3/watch", request, 10, lambda: False)
            assert next(one for one in answers if one.get("canceled"))["compact_revision"] == "5"


def test_users_and_passwords(tmp_path: Path) -> None:
    """A wrong password is an operator's fault; a token that etcd forgot is replaced; so are users that are new."""
    with etcd_servers(tmp_path) as servers:

        async def main() -> None:
            without = EtcdCoordinator(patient(servers), "users")
            coordinator = EtcdCoordinator(patient(servers, user="root", password="right"), "users")
            await coordinator.transact(progress(1))  # etcd has no users yet
            with closing(Gateway(patient(servers))) as gateway:
                for path, body in (
                    ("user/add", {"name": "root", "password": "right"}),
                    ("role/add", {"name": "root"}),
                    ("user/grant", {"user": "root", "role": "root"}),
                    ("enable", {}),
                ):
                    gateway.change(f"/v3/auth/{path}", body)
            await coordinator.transact(progress(2))
            assert (await coordinator.read()).agreed.lsn == 2
            wrong = EtcdCoordinator(patient(servers, user="root", password="wrong"), "users")
            with pytest.raises(UnfitCoordinator, match="refuses the login of root: .*authentication failed"):
                await wrong.read()
            with pytest.raises(UnfitCoordinator, match="refuses this user: .*user name is empty"):
                await without.read()

        trio.run(main)


def test_tls(tmp_path: Path) -> None:
    """The member's certificate is checked, and it asks for ours."""
    authority = Authority(tmp_path)
    certificate = authority.issue("etcd", "127.0.0.1")
    options = ("--cert-file", str(certificate), "--key-file", str(certificate.with_suffix(".key")))
    servers = EtcdServers(
        tmp_path, 1, (*options, "--client-cert-auth", "--trusted-ca-file", str(authority.file)), "https"
    )
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    stranger = Authority(tmp_path)
    servers.start(0)
    try:

        async def main() -> None:
            coordinator = EtcdCoordinator(patient(servers, tls=context), "tls")
            await change_until_done(coordinator, 1)
            assert (await coordinator.read()).agreed.lsn == 1
            foreign = ssl.create_default_context(cafile=stranger.file)
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await EtcdCoordinator(patient(servers, tls=foreign), "tls").read()

        trio.run(main)
    finally:
        servers.close()
