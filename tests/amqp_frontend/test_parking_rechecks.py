"""What waits for a limit of the whole broker goes on when its own queue is no longer limited, is deleted or unbound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pair import Pair
from pamqp import commands as C
from peer import method, publish

from leveret.engine import BrokerOptions
from leveret.settings import SettingsRepository, WholeLimits, entry

Change = Callable[["Bench"], object]


def entries(**of_q: Any) -> list[Any]:
    """`q` and `full` share a limit of the whole broker."""
    return [entry("q", **{"address_full_policy": "BLOCK", **of_q}), entry("full", address_full_policy="BLOCK")]


class Bench(Pair):
    """A limit of three messages, which the queue `full` keeps, and a publisher."""

    def __init__(self) -> None:
        options = BrokerOptions(whole_limits=WholeLimits(messages_max=3))
        super().__init__(broker={"settings": SettingsRepository(entries()), "options": options})
        self.other = self.open(1)
        for name in ("q", "full"):
            self.other.call(1, C.Queue.Declare, queue=name)
        for exchange in ("one", "two"):
            self.other.call(1, C.Exchange.Declare, exchange=exchange, exchange_type="fanout")
        self.other.call(1, C.Exchange.Bind, destination="two", source="one", routing_key="")
        self.other.call(1, C.Queue.Bind, queue="q", exchange="two", routing_key="")
        for _ in range(3):
            self.other.send(publish(1, "full", b"x"))
        self.peer, self.operator = self.open(1), self.open(1)

    def answers(self) -> list[str]:
        return [one.frame.name for one in self.peer.take()]

    def reload(self, **of_q: Any) -> None:
        context = self.broker.context
        self.broker.reloading.replace_settings(SettingsRepository(entries(**of_q)), context.options)
        self.settle()

    def ready(self, name: str = "q") -> int:
        return self.broker.virtual_hosts["/"].queues[name].ready_count


def reloaded(policy: str) -> Change:
    return lambda bench: bench.reload(address_full_policy=policy)


def called(kind: type[Any], **fields: Any) -> Change:
    return lambda bench: bench.operator.call(1, kind, **fields)


@pytest.mark.parametrize(
    ("change", "exchange", "answer", "ready"),
    [
        (reloaded("DROP"), "", ["Basic.Ack"], 0),
        (reloaded("FAIL"), "", ["Basic.Nack"], 0),
        (reloaded("PAGE"), "", ["Basic.Ack"], 1),
        (called(C.Queue.Delete, queue="q"), "", ["Basic.Ack"], None),
        (called(C.Queue.Unbind, queue="q", exchange="two", routing_key=""), "one", ["Basic.Ack"], 0),
        (called(C.Exchange.Unbind, destination="two", source="one", routing_key=""), "one", ["Basic.Ack"], 0),
        (called(C.Exchange.Delete, exchange="two"), "one", ["Basic.Ack"], 0),
        (reloaded("BLOCK"), "", [], 0),
        (called(C.Queue.Unbind, queue="q", exchange="two", routing_key=""), "", [], 0),
    ],
    ids=["DROP", "FAIL", "PAGE", "deleted", "unbound", "exchange unbound", "exchange deleted", "same", "other route"],
)
def test_who_waits_for_what_no_longer_holds_goes_on(
    change: Change, exchange: str, answer: list[str], ready: int | None
) -> None:
    """Although the limit of the whole broker is reached all the time. Others wait on."""
    bench = Bench()
    bench.peer.call(1, C.Confirm.Select)
    bench.peer.send(publish(1, "q", b"m", exchange=exchange))
    bench.other.send(publish(1, "full", b"m"))
    waiting = bench.broker.flow.blocked()
    assert [one.client.name for one in waiting] == ["peer 2", "peer 1"] and bench.answers() == []
    bench.advance(1)
    change(bench)
    bench.settle()
    assert bench.answers() == answer
    if ready is not None:
        assert bench.ready() == ready
    assert bench.broker.flow.blocked() == waiting[bool(answer) :] and bench.ready("full") == 3


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "reloaded"])
def test_a_commit_that_waits_for_what_no_longer_holds_is_applied(is_deleted: bool) -> None:
    bench = Bench()
    bench.peer.call(1, C.Tx.Select)
    bench.peer.send(publish(1, "q", b"m"), method(1, C.Tx.Commit))
    assert bench.answers() == []
    if is_deleted:
        bench.operator.call(1, C.Queue.Delete, queue="q")
        bench.settle()
    else:
        bench.reload(address_full_policy="PAGE")
    assert bench.answers() == ["Tx.CommitOk"]
    assert bench.broker.flow.blocked() == []
