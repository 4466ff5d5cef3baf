"""Names of nodes and of etcd's members are looked up, but not for as long as a resolver likes."""

import socket
import threading
from typing import Any

import pytest

from leveret.cluster.coordinator.errors import Unreachable
from leveret.cluster.coordinator.gateway import EtcdAccess, Gateway
from leveret.cluster.resolver import Found, Resolver

#: Enough for a thread that has its answer, on a machine that is busy.
LONG = 60.0
FOUND: list[Found] = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 2379))]


class Names:
    """A system's resolver: it answers while `answers` is set."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.asked: list[tuple[str, int]] = []
        self.answers = threading.Event()

    def look_up(self, host: str, port: int, **how: object) -> list[Found]:
        self.asked.append((host, port))
        assert self.answers.wait(LONG)
        result = self.results.pop(0) if self.results else FOUND
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]


def test_a_name_is_looked_up_each_time() -> None:
    """A node may move to another address."""
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 2379))]
    names = Names(FOUND, elsewhere)
    names.answers.set()
    resolver = Resolver(names.look_up)
    assert resolver.resolve("etcd.example", 2379, LONG) == FOUND
    assert resolver.resolve("etcd.example", 2379, LONG) == elsewhere


def test_a_resolver_that_hangs_is_waited_for_by_one_thread_alone() -> None:
    """Whoever asks goes on after his time; the answer serves those who ask when it is there."""
    names = Names()
    resolver = Resolver(names.look_up)
    for _ in range(3):
        with pytest.raises(TimeoutError, match=r"etcd\.example was not found in time"):
            resolver.resolve("etcd.example", 2379, 0)
    assert names.asked == [("etcd.example", 2379)]
    names.answers.set()
    assert resolver.resolve("etcd.example", 2379, LONG) == FOUND


def test_while_the_resolver_hangs_the_address_that_was_found_last_is_used() -> None:
    """A cluster goes on without it."""
    names = Names()
    names.answers.set()
    resolver = Resolver(names.look_up)
    resolver.resolve("etcd.example", 2379, LONG)
    names.answers.clear()
    assert resolver.resolve("etcd.example", 2379, 0) == FOUND
    names.answers.set()


def test_a_lookup_that_failed_does_not_replace_what_was_found_before() -> None:
    """The name server was away for a moment; then it hangs."""
    names = Names(FOUND, socket.gaierror(-3, "Temporary failure in name resolution"))
    names.answers.set()
    resolver = Resolver(names.look_up)
    resolver.resolve("etcd.example", 2379, LONG)
    with pytest.raises(OSError, match="Temporary failure"):
        resolver.resolve("etcd.example", 2379, LONG)
    names.answers.clear()
    assert resolver.resolve("etcd.example", 2379, 0) == FOUND
    names.answers.set()


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), UnicodeError("too long")])
def test_a_name_that_is_not_known_is_an_error_of_the_system(error: Exception) -> None:
    names = Names(error)
    names.answers.set()
    with pytest.raises(OSError):
        Resolver(names.look_up).resolve("etcd.example", 2379, LONG)


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
def test_a_name_that_no_host_can_have_is_an_error_of_the_system(host: str) -> None:
    with pytest.raises(OSError, match="is not a name of a host"):
        Resolver().resolve(host, 2379, LONG)


def test_a_search_that_could_not_begin_or_broke_off_does_not_stand_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one finds the address."""
    names = Names()
    names.answers.set()
    resolver = Resolver(names.look_up)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patches:
        patches.setattr(threading.Thread, "start", start)
        with pytest.raises(OSError, match=r"no thread can look up etcd\.example"):
            resolver.resolve("etcd.example", 2379, 0)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    names.results.append(MemoryError())
    with pytest.raises(OSError, match=r"the search for 'etcd\.example' failed"):
        resolver.resolve("etcd.example", 2379, LONG)
    assert resolver.resolve("etcd.example", 2379, LONG) == FOUND


def test_addresses_in_numbers_need_no_resolver() -> None:
    names = Names()
    assert Resolver(names.look_up).resolve("::1", 2379, 0)[0][4][:2] == ("::1", 2379)
    assert names.asked == []


def test_a_gateway_leaves_a_member_whose_name_is_not_found_in_time() -> None:
    """Nothing was sent: a change is not in doubt."""
    names = Names()
    access = EtcdAccess(("http://etcd.example:2379",), connect_seconds=0.01, resolver=Resolver(names.look_up))
    with pytest.raises(Unreachable, match=r"http://etcd\.example:2379: no answer in time"):
        Gateway(access).change("/v3/kv/txn", {})
    names.answers.set()
