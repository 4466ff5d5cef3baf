"""The source, `spark.readStream.format("amqp")`: reads a stream queue of RabbitMQ or Leveret by offset.

Offsets are those of the stream, so a repeated micro-batch reads the same messages. With a checkpoint, and a sink such
as files that does not duplicate, each message comes once, also after a kill. Nothing is removed from the stream. The
query fails rather than skip a message: if retention has deleted an unread message; if a client of RabbitMQ's stream
protocol stored its offset there, which uses up an offset of the stream; and if the stream ends before the last offset
read, because it was deleted and created again.
Source: behaviour page 3.7.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aio_pika
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .rows import COLUMNS, row_of

SCHEMA = f"offset bigint, {COLUMNS}"
OFFSET = "x-stream-offset"
OPTIONS = ("url", "queue", "prefetch", "maxoffsetspertrigger", "timeout")
#: Seconds without a message, and seconds in total, after which the search for the newest message ends.
QUIET_SECONDS, LOOK_SECONDS = 0.02, 0.2
#: Seconds to wait for a message of a stream that the broker reports as empty.
EMPTY_SECONDS = 0.1
Row = tuple[Any, ...]


class StreamFailed(Exception):
    """A message was deleted, or did not arrive."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of the source.

    prefetch: the most unacknowledged messages. per_trigger: the most messages of a micro-batch. timeout: seconds to
    wait for a message.
    """

    url: str
    queue: str
    prefetch: int = 500
    per_trigger: int = 100_000
    timeout: float = 30.0

    @classmethod
    def read(cls, options: Any) -> "SourceOptions":
        """Read Spark's options. Raises: ValueError."""
        for name in options:
            if name.lower() not in OPTIONS:
                raise ValueError(f"amqp: the source has no option {name!r}; it has {', '.join(OPTIONS)}")
        for name in ("url", "queue"):
            if name not in options:
                raise ValueError(f'amqp: option "{name}" is missing')
        prefetch, most = int(options.get("prefetch", 500)), int(options.get("maxOffsetsPerTrigger", 100_000))
        timeout = float(options.get("timeout", 30))
        if not 1 <= prefetch <= 65535 or most < 1 or timeout <= 0:
            raise ValueError("amqp: prefetch must be 1 to 65535, maxOffsetsPerTrigger 1 or more, timeout above 0")
        return cls(options["url"], options["queue"], prefetch, most, timeout)


class OffsetRange(InputPartition):
    """The offsets begin <= offset < end."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__(begin)
        self.begin = begin
        self.end = end


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream, with one task per micro-batch to preserve the stream's order."""

    def __init__(self, options: Any) -> None:
        self._options = SourceOptions.read(options)
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"offset": asyncio.run(oldest_offset(self._options)) or 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.per_trigger)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The end of a micro-batch: behind the newest message, or `limit` messages after `start`."""
        begin = start["offset"]
        end = self._target if self._target is not None else self._end(begin)
        if isinstance(limit, ReadAllAvailable):
            return {"offset": max(begin, end)}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.per_trigger
        return {"offset": max(begin, min(end, begin + most))}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._end(0)

    def _end(self, begin: int) -> int:
        """The offset behind the newest message. Raises: StreamFailed (it is before `begin`)."""
        deadline = time.monotonic() + self._options.timeout
        while (last := asyncio.run(newest_offset(self._options))) is not None:
            if last + 1 >= begin:
                return last + 1
            if time.monotonic() > deadline:  # before the deadline a replica may still lag
                raise StreamFailed(
                    f"amqp: {self._options.queue}: its newest offset is {last}, but {begin - 1} was read:"
                    " this is another stream of the same name"
                )
        return begin

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [OffsetRange(start["offset"], end["offset"])]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Rows with `SCHEMA`. Raises: StreamFailed."""
        if not isinstance(partition, OffsetRange) or partition.begin >= partition.end:
            return
        with asyncio.Runner() as runner:
            runs = consume(self._options, partition.begin, partition.end)
            try:
                while (rows := runner.run(anext(runs, None))) is not None:
                    yield from rows
            finally:
                runner.run(runs.aclose())


async def oldest_offset(options: SourceOptions) -> int | None:
    """Offset of the oldest message; None for an empty stream."""
    async with _channel(options, prefetch=1) as (channel, inbox):
        message = await _first_from(channel, options, "first", inbox)
        return None if message is None else _offset_of(message)


async def newest_offset(options: SourceOptions) -> int | None:
    """Offset of the newest message, or of a recent one; None for an empty stream.

    This consumes from the last chunk on until no more messages come: RabbitMQ's count of messages may be five seconds
    old.
    """
    async with _channel(options, prefetch=options.prefetch) as (channel, inbox):
        message = await _first_from(channel, options, "last", inbox)
        if message is None:
            return None
        until = time.monotonic() + LOOK_SECONDS
        with suppress(TimeoutError):
            while time.monotonic() < until:
                if inbox.empty():
                    await message.ack(multiple=True)
                message = await _receive(options, inbox, "the newest message", QUIET_SECONDS)
        return _offset_of(message)


async def _first_from(channel: Any, options: SourceOptions, which: str, inbox: "asyncio.Queue[Any]") -> Any:
    """The first message of the stream, or of its last chunk; None if the stream is empty. `which`: first or last."""
    await _subscribe(channel, options, which, inbox)
    declared = await channel.declare_queue(options.queue, passive=True)
    if declared.declaration_result.message_count:
        try:
            return await _receive(options, inbox, f"the {which} message", options.timeout)
        except TimeoutError:
            raise StreamFailed(f"amqp: {options.queue}: no message came in {options.timeout:g} s") from None
    with suppress(TimeoutError):  # RabbitMQ may not have counted yet
        return await _receive(options, inbox, f"the {which} message", EMPTY_SECONDS)
    return None


async def consume(options: SourceOptions, begin: int, end: int) -> AsyncGenerator[list[Row], None]:
    """Rows with begin <= offset < end, in lists. Raises: StreamFailed."""
    async with _channel(options, prefetch=options.prefetch) as (channel, inbox):
        await _subscribe(channel, options, begin, inbox)
        due, at_once = begin, (options.prefetch + 1) // 2
        while due < end:
            rows: list[Row] = []
            for _ in range(at_once):
                if rows and inbox.empty():
                    break
                try:
                    message = await _receive(options, inbox, f"offset {due}", options.timeout)
                except TimeoutError:
                    words = f"offset {due} did not come in {options.timeout:g} s"
                    raise StreamFailed(f"amqp: {options.queue}: {words}") from None
                at = _offset_of(message)
                if at > due:
                    raise StreamFailed(f"amqp: {options.queue}: offsets {due} to {at - 1} are gone")
                if at == due:  # otherwise RabbitMQ started with the chunk that contains the offset
                    rows.append((at, *row_of(message, without=OFFSET)))
                    due += 1
                if due == end:
                    break
            await message.ack(multiple=True)  # renews the credit; removes nothing
            yield rows


@asynccontextmanager
async def _channel(options: SourceOptions, prefetch: int) -> AsyncIterator[tuple[Any, "asyncio.Queue[Any]"]]:
    """Open a channel. Yields it, and an inbox of its messages; the last item is the reason why the channel closed."""
    connection = await aio_pika.connect(options.url)
    async with connection:
        channel = await connection.channel()
        inbox: asyncio.Queue[Any] = asyncio.Queue()
        channel.close_callbacks.add(lambda _, why: inbox.put_nowait(why or ConnectionError("closed")))
        await channel.set_qos(prefetch_count=prefetch)  # required for streams
        yield channel, inbox


async def _subscribe(channel: Any, options: SourceOptions, where: int | str, inbox: "asyncio.Queue[Any]") -> None:
    queue = await channel.get_queue(options.queue, ensure=False)
    await queue.consume(inbox.put, arguments={OFFSET: where})


async def _receive(options: SourceOptions, inbox: "asyncio.Queue[Any]", what: str, seconds: float) -> Any:
    """The next message. `what`: its name in errors. Raises: TimeoutError, StreamFailed."""
    found = await asyncio.wait_for(inbox.get(), seconds)
    if isinstance(found, BaseException):
        raise StreamFailed(f"amqp: {options.queue}: the broker closed the connection before {what} came: {found}")
    return found


def _offset_of(message: Any) -> int:
    return int(message.headers[OFFSET])
