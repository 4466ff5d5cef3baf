"""Starts the drivers of the requested clients that can run on this machine."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from .driver import DriverFailed
from .suite import Driven
from .toolchains import CLIENTS, NotHere


def driven_clients(
    names: Sequence[str], work: Path, stack: ExitStack, *, log: str = "{}.log"
) -> tuple[dict[str, Driven], dict[str, str]]:
    """The drivers that run, which end with the stack; and the clients without one, with the reason.

    `log`: the name of a driver's log in `work`, in which `{}` is the client's name.

    Raises: ValueError: there is no such client, or no requested client can run here.
    """
    unknown = [name for name in names if name not in CLIENTS]
    if unknown:
        raise ValueError(f"no such client: {', '.join(unknown)} (there are {', '.join(CLIENTS)})")
    clients, skipped = {}, {}
    work.mkdir(parents=True, exist_ok=True)
    for name in names:
        try:
            command = CLIENTS[name].prepare(work, lambda text: print(text, flush=True))
            clients[name] = Driven(command, work / log.format(name))
            stack.callback(clients[name].end)
        except (NotHere, DriverFailed) as error:
            skipped[name] = str(error)
    if not clients:
        raise ValueError("; ".join(f"{name}: {why}" for name, why in skipped.items()))
    return clients, skipped
