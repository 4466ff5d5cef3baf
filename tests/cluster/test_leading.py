"""What a leadership tells its followers, from the first octets that its journal writes until it resigns."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from leveret.cluster.leading import Leading
from leveret.cluster.link.challenge import Credentials
from leveret.cluster.link.options import Address
from leveret.cluster.options import NodeOptions
from leveret.journal import ClusterJournal, reader_offsets, register_reader
from leveret.journal.copying.copied_journal import CopiedJournal
from leveret.journal.format.needs import LEVEL_MIN


class Broker:
    """A `LeadingBroker` without a journal of its own, which closes the directory."""

    def __init__(self, cluster: ClusterJournal) -> None:
        self.cluster = cluster
        self.agreed: list[int] = []
        self.sites: list[object] = []

    def set_sites(self, sites: Mapping[str, object]) -> None:
        self.sites.append(dict(sites))

    def add_site(self, node: str, site: object) -> None:
        self.sites.append((node, site))

    def remove_site(self, node: str) -> None:
        self.sites.append(node)

    def agree(self, lsn: int, *, at_once: bool) -> None:
        self.agreed.append(lsn)

    def resign(self) -> None:
        pass

    async def close_unserved(self) -> None:
        self.cluster.directory.close()


def leading(path: Path, build: Any = Broker, level: int = 1) -> Leading:
    """In term 2, of a node `a`."""
    options = NodeOptions("a", str(path), Credentials("orders"), {"a": Address("127.0.0.1", 1)})
    process: Any = SimpleNamespace(build=build)
    listener: Any = SimpleNamespace(links=None)
    return Leading(options, 2, level, process, listener, lambda event: None, dict, lambda: 0)


def in_virtual_time(test: Any, path: Path) -> None:
    trio.run(test, path / "data", clock=trio.testing.MockClock(autojump_threshold=0))


def writing(cluster: ClusterJournal, *needs: str) -> Broker:
    """A broker whose journal has these needs, and has then written its first octets."""
    cluster.on_needs(frozenset(needs))
    cluster.on_written(1, 0, bytearray(b"octets"), 2)
    return Broker(cluster)


async def opened(led: Leading) -> None:
    """The journal is new."""
    await led.open(CopiedJournal.open(led._options.path), b"J" * 16, 1)


def test_what_is_agreed_is_told_to_the_broker_and_to_the_followers(tmp_path: Path) -> None:
    """A follower trusts its journal up to there when it takes over."""

    async def agree(path: Path) -> None:
        led = leading(path, writing)
        await led.open(CopiedJournal.open(led._options.path), b"J" * 16, 5)
        assert led.links is not None and led.links.agreed == 5, "from the first beacon on, by the leader before"
        led.agree(7, at_once=True)
        assert led.links.agreed == 7
        assert led.broker.agreed == [7]  # type: ignore[union-attr]
        await led.resign("b leads term 3")

    in_virtual_time(agree, tmp_path)


def test_followers_are_told_all_that_the_journal_needs_of_a_program(tmp_path: Path) -> None:
    """Also what it began to need before it wrote anything: a program that knows less must not copy it."""

    async def need(path: Path) -> None:
        led = leading(path, lambda cluster: writing(cluster, "early"))
        await opened(led)
        led._needed(frozenset({"late"}))
        assert led.links is not None and led.links.needs >= {"early", "late"}
        await led.resign("b leads term 3")

    in_virtual_time(need, tmp_path)


def test_a_leader_writes_what_every_program_reads_whatever_level_etcd_says(tmp_path: Path) -> None:
    """`leveret cluster recover` of an earlier release wrote level 0: no broker could be built that way."""

    async def lead(path: Path) -> None:
        led = leading(path, level=0)
        await opened(led)
        assert led.broker.cluster.level == LEVEL_MIN  # type: ignore[union-attr]
        await led.resign("b leads term 3")

    in_virtual_time(lead, tmp_path)


def test_segments_are_kept_for_no_follower_of_an_earlier_leadership(tmp_path: Path) -> None:
    """A process that died could not end its links: the disk would fill up. Other readers keep theirs."""

    async def lead(path: Path) -> None:
        copied = CopiedJournal.open(str(path))
        for reader in ("node-b-1", "backup"):
            register_reader(str(path), reader, 1)
        led = leading(path)
        await led.open(copied, b"J" * 16, 1)
        assert list(reader_offsets(str(path))) == ["backup"]
        await led.resign("b leads term 3")

    in_virtual_time(lead, tmp_path)


def test_links_that_begin_while_the_leader_resigns_end_with_it(tmp_path: Path) -> None:
    """Its journal was being opened. Followers must be there for the next leader."""
    begun, goes_on = trio.Event(), trio.Event()

    def build(cluster: ClusterJournal) -> Broker:
        trio.from_thread.run_sync(begun.set)
        trio.from_thread.run(goes_on.wait)
        return writing(cluster)

    async def resign(path: Path) -> None:
        led = leading(path, build)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(opened, led)
            await begun.wait()
            nursery.start_soon(led.resign, "b leads term 3")
            await trio.testing.wait_all_tasks_blocked()
            goes_on.set()
        assert led.links is not None and led.links.is_closed
        assert led._listener.links is None
        assert led.broker.sites == []  # type: ignore[union-attr]

    in_virtual_time(resign, tmp_path)


def test_a_broker_hears_which_nodes_have_links(tmp_path: Path) -> None:
    """Of those before it was built at once, of the others as they come and go, and of none after its end."""

    async def follow(path: Path) -> None:
        led = leading(path)
        for node in ("b", "c"):
            led._node_joined(node, {"group": node})
        led._node_left("c")
        await opened(led)
        led._node_joined("d", {"group": "d"})
        led._node_left("b")
        await led.resign("b leads term 3")
        led._node_joined("e", {})
        led._node_left("d")
        broker: Any = led.broker
        assert broker.sites == [{"b": {"group": "b"}}, ("d", {"group": "d"}), "b"]

    in_virtual_time(follow, tmp_path)
