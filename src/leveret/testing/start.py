"""Starting a test broker: for synchronous code, for trio, for asyncio."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from os import PathLike
from typing import Any

import sniffio
import trio

from .broker import RunningBroker
from .engine_clock import ClockMode
from .host import Host
from .loop_thread import result_of
from .nearest_names import nearest_keywords
from .options import QUIET_MS_DEFAULT, Config, read_options


@nearest_keywords
@contextmanager
def start_broker(
    *,
    clock: ClockMode = "real",
    config: Config | None = None,
    profile: str | None = None,
    data: str | PathLike[str] | None = None,
    clock_start: datetime | None = None,
    quiet_ms: float = QUIET_MS_DEFAULT,
    virtual_heartbeats: bool = False,
    seed: int | None = None,
    management: bool = False,
) -> Iterator[RunningBroker]:
    """A broker in its own thread, on a free port of 127.0.0.1, which accepts connections inside the `with` block.

    Args:
        clock: "virtual": time passes only by `broker.clock`.
        config: path of a file, TOML text, or a dict of the same shape.
        profile: the version of RabbitMQ whose behavior applies, as in `leveret serve --profile`.
        data: directory of a journal, created if needed, in which durable queues and their persistent messages outlive
            the broker; default: everything in memory.
        clock_start: the wall time at the start (naive: UTC); default: now, or, on virtual time with `data`, the time
            at which the last broker there stopped.
        quiet_ms: milliseconds of real time without activity before virtual time advances.
        virtual_heartbeats: heartbeats and handshake limits use the broker's clock, too.
        seed: makes the broker's own chance (collision avoidance) reproducible.
        management: serve RabbitMQ's HTTP API, too, at `management_url`. Needs `leveret[console]`.
    Raises: BrokerOptionsError.
    """
    options = read_options(
        clock=clock,
        config=config,
        profile=profile,
        data=data,
        clock_start=clock_start,
        quiet_ms=quiet_ms,
        virtual_heartbeats=virtual_heartbeats,
        seed=seed,
        management=management,
    )
    broker = RunningBroker(Host(options)).start()
    try:
        yield broker
    finally:
        broker.stop()


@nearest_keywords
@asynccontextmanager
async def open_broker(
    *,
    clock: ClockMode = "real",
    config: Config | None = None,
    profile: str | None = None,
    data: str | PathLike[str] | None = None,
    clock_start: datetime | None = None,
    quiet_ms: float = QUIET_MS_DEFAULT,
    virtual_heartbeats: bool = False,
    seed: int | None = None,
    management: bool = False,
) -> AsyncIterator[RunningBroker]:
    """`start_broker` for trio and asyncio, with `async with`; starting and stopping do not block the loop."""
    options = read_options(
        clock=clock,
        config=config,
        profile=profile,
        data=data,
        clock_start=clock_start,
        quiet_ms=quiet_ms,
        virtual_heartbeats=virtual_heartbeats,
        seed=seed,
        management=management,
    )
    broker = RunningBroker(Host(options))
    await _completed(broker.thread.begin())
    try:
        yield broker
    finally:
        await _completed(broker.thread.end())
        broker.thread.join()


async def _completed(future: "Future[Any]") -> None:
    """Wait for a start or an end. A cancellation takes effect after it, so that no half-started thread remains."""
    if sniffio.current_async_library() == "trio":
        with trio.CancelScope(shield=True):
            await result_of(future)
    else:
        await result_of(future)
