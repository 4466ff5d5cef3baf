"""Clients as state machines over frames, called when octets come and when it is their turn to do something."""

from collections.abc import Callable
from random import Random
from typing import Any

from ..plan import ClientPlan
from .binder import Binder
from .borrower import Borrower
from .channel import Channel
from .client import Client, Surroundings
from .clumsy import Clumsy
from .declarer import Declarer
from .explorer import Explorer
from .getter import Getter
from .inspector import Inspector
from .publisher import Publisher
from .tenant import Tenant
from .worker import Worker

#: What the channels of clients do.
KINDS: dict[str, Callable[[Client, int, dict[str, Any], int], Channel]] = {
    "publisher": Publisher,
    "worker": Worker,
    "tenant": Tenant,
    "getter": Getter,
    "borrower": Borrower,
    "declarer": Declarer,
    "binder": Binder,
    "clumsy": Clumsy,
    "inspector": Inspector,
    "explorer": Explorer,
}


def make_client(world: Surroundings, plan: ClientPlan) -> Client:
    """A client of a plan, with one channel or several."""
    wanted = plan.options["channels"] if plan.kind == "several" else [[plan.kind, plan.options]]
    chance = Random(f"channels {plan.seed}")

    def make(client: Client) -> list[Channel]:
        return [
            KINDS[kind](client, number, options, chance.getrandbits(32))
            for number, (kind, options) in enumerate(wanted, 1)
        ]

    return Client(world, plan, make)
