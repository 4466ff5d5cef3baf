"""The drivers of the clients that are asked for, started as far as they can be driven on this machine."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from .driver import DriverFailed
from .suite import Driven
from .toolchains import CLIENTS, NotHere


def driven_clients(
    names: Sequence[str], work: Path, stack: ExitStack, *, log: str = "{}.log"
) -> tuple[dict[str, Driven], dict[str, str]]:
    """The available drivers, which end with the stack, and for the others the reason why not.

    Args: log: name of a driver's log in `work`, with `{}` for the client's.
    Raises: ValueError: no such client, or none of those asked for can be driven here.
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
