"""A publisher that waits for each confirm and connects again when its connection ends: when were confirms there?"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from pamqp import commands, frame, header
from raw_client import RawClient, Unexpected

BODY_SIZE = 1024
#: Seconds that an answer may take before the client tries the next node.
ANSWER_SECONDS_MAX = 2.0
CONNECT_PAUSE_SECONDS = 0.02


class ConfirmingPublisher:
    """Publishes persistent messages into a quorum queue, one after the other, in a thread. `times`: of confirms, in
    seconds of the monotonic clock. `unanswered`: publishes without a confirm."""

    def __init__(self, ports: Sequence[int], queue: str) -> None:
        self.times: list[float] = []
        self.unanswered = 0
        self.faults: list[str] = []
        self._ports = list(ports)
        self._queue = queue
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ConfirmingPublisher:
        self._thread.start()
        self.await_confirms(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def await_confirms(self, count: int, seconds_max: float = 120) -> None:
        """Wait until so many more confirms came. Raises: TimeoutError, with the last faults."""
        wanted, deadline = len(self.times) + count, time.monotonic() + seconds_max
        while len(self.times) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no confirm for {seconds_max:g} s: {self.faults[-3:]}")
            time.sleep(0.005)

    def longest_gap(self, since: float) -> float:
        """The longest time without a confirm that ended after `since`."""
        times = list(self.times)
        return max((later - one for one, later in zip(times, times[1:]) if later > since), default=0.0)

    def _run(self) -> None:
        at = 0
        while not self._stopping.is_set():
            client = None
            try:
                client = RawClient(self._ports[at % len(self._ports)], deadline_seconds=ANSWER_SECONDS_MAX)
                client.handshake()
                self._publish(client)
            except (OSError, Unexpected) as fault:
                self.faults.append(f"{type(fault).__name__}: {fault}")
                at += 1
                self._stopping.wait(CONNECT_PAUSE_SECONDS)
            finally:
                if client is not None:
                    with suppress(OSError):
                        client.reset()

    def _publish(self, client: RawClient) -> None:
        client.send(commands.Queue.Declare(queue=self._queue, durable=True, arguments={"x-queue-type": "quorum"}))
        client.expect(commands.Queue.DeclareOk)
        client.send(commands.Confirm.Select())
        client.expect(commands.Confirm.SelectOk)
        method = frame.marshal(commands.Basic.Publish(exchange="", routing_key=self._queue), 1)
        properties = commands.Basic.Properties(delivery_mode=2)
        head = method + frame.marshal(header.ContentHeader(body_size=BODY_SIZE, properties=properties), 1)
        head += b"\x03\0\1" + BODY_SIZE.to_bytes(4)
        while not self._stopping.is_set():
            client.write(head + os.urandom(BODY_SIZE) + b"\xce")
            self.unanswered += 1
            client.wait_for(commands.Basic.Ack)
            self.unanswered -= 1
            self.times.append(time.monotonic())
