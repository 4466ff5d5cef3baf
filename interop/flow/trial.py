"""Runs rows by each client, side by side if a row uses the limit of an address."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..brokers.peers import Peer, durable_leveret
from ..running.suite import Driven
from . import address_limits, broker_limits, refused, subscribers
from .client import Differs, RowClient
from .configurations import SHARED, WORLDS
from .operator import Operator
from .row import ROWS, SLACK_SECONDS, Row, Scene

#: In the order of the page.
CHAPTERS = {
    "Held": address_limits,
    "Refused": refused,
    "The whole broker": broker_limits,
    "Subscribers and consumers": subscribers,
}
SEEN, DIFFERS, LACKS = "seen", "differs", "lacks"


@dataclass(frozen=True, slots=True)
class Result:
    """A row by a client. `verdict`: SEEN, DIFFERS, or LACKS (the client cannot do it); `what`: in words."""

    row: str
    client: str
    verdict: str
    what: str


def rows(names: Sequence[str] = ()) -> list[Row]:
    """All rows, or those with these names. Raises: ValueError: there is no such row."""
    known = {row.name: row for row in ROWS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no such row: {', '.join(unknown)} (there are {', '.join(known)})")
    return [row for row in ROWS if not names or row.name in names]


def run(
    chosen: Sequence[Row],
    clients: Mapping[str, Driven],
    tell: Callable[[Result], None] = lambda result: None,
    slack: float = SLACK_SECONDS,
) -> list[Result]:
    """Run each row by each client. `slack`: seconds that a busy machine may add to times."""
    results: list[Result] = []
    for world, configuration in WORLDS.items():
        mine = [row for row in chosen if row.world == world]
        if not mine:
            continue
        with _broker(configuration) as peer, ThreadPoolExecutor(max(1, len(clients))) as pool:
            for row in mine:
                play = lambda driven, row=row: _result(row, driven, peer, slack)  # noqa: E731
                beside = map if world in SHARED else pool.map
                for result in beside(play, clients.values()):
                    results.append(result)
                    tell(result)
    return results


@contextmanager
def _broker(configuration: str) -> Iterator[Peer]:
    with tempfile.TemporaryDirectory(prefix="leveret-flow-") as directory:
        file = Path(directory) / "flow.toml"
        file.write_text(configuration)
        with durable_leveret("--config", str(file)) as peer:
            yield peer


def _result(row: Row, driven: Driven, peer: Peer, slack: float) -> Result:
    name = driven.hello.client
    why = next((f"{need}: {driven.hello.lacks[need]}" for need in row.needs if need in driven.hello.lacks), "")
    if why:
        return Result(row.name, name, LACKS, why)
    try:
        with Operator(peer) as operator, ExitStack() as stack:
            client = RowClient(driven, peer, stack)
            queue_name = f"{name}-{uuid.uuid4().hex[:6]}"
            try:
                what = row.play(Scene(client, operator, queue_name, slack))
            except Exception:
                client.abandon()
                raise
            client.end()
            for queue in operator.queues():
                if queue.endswith(queue_name):
                    operator.delete(queue)
    except Differs as error:
        return Result(row.name, name, DIFFERS, str(error))
    except Exception as error:  # of a client or of the row: this row failed, others may pass
        return Result(row.name, name, DIFFERS, f"{type(error).__name__}: {error}")
    return Result(row.name, name, SEEN, what)
