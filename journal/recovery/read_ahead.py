"""Blocks that a thread reads and checks while the broker is busy with those before: reading a file and its CRC need no
interpreter, and a deep queue is drained in order.
"""

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread

from ..format.block import Block

#: Octets that may lie ready: what a fast consumer takes in some 10 ms.
AHEAD_OCTETS = 4 * 1024 * 1024
#: Blocks are handed over together that have so many: each time, the threads wait for one another.
BATCH_OCTETS = 512 * 1024


class ReadAhead(Iterator[Block]):
    """The blocks of `blocks`, which only this object's thread touches from the second one on.

    The first is read by the caller: one that wants no more pays for no thread. What goes wrong is raised where the
    block would have come.
    """

    def __init__(self, blocks: Iterator[Block], ahead_octets: int = AHEAD_OCTETS) -> None:
        self._blocks = blocks
        self._ahead_octets = ahead_octets
        self._changed = Condition()
        self._ready: deque[Block] = deque()
        self._octets = 0
        self._is_full = False  # until half of it is taken: each time that the thread wakes, it takes the interpreter
        self._is_first = True
        self._thread: Thread | None = None
        self._is_over = False
        self._error: BaseException | None = None

    def __next__(self) -> Block:
        if self._is_first:
            self._is_first = False
            return next(self._blocks)
        if self._thread is None and not self._is_over:
            thread = Thread(target=self._read, name="leveret-read-ahead", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no room for another thread now: this one reads
                return next(self._blocks)
            self._thread = thread
        with self._changed:
            while not self._ready and not self._is_over:
                self._changed.wait()
            if self._ready:
                block = self._ready.popleft()
                self._octets -= block.header.size
                if self._is_full and self._octets <= self._ahead_octets // 2:
                    self._is_full = False
                    self._changed.notify()
                return block
        if self._error is not None:
            raise self._error
        raise StopIteration

    def close(self) -> None:
        """Stop reading; when this returns, nobody touches the file."""
        with self._changed:
            self._is_over = True
            self._ready.clear()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _read(self) -> None:
        error: BaseException | None = None
        batch: list[Block] = []
        octets = 0
        try:
            for block in self._blocks:
                batch.append(block)
                octets += block.header.size
                if octets >= BATCH_OCTETS:
                    if not self._hand_over(batch, octets):
                        return
                    batch, octets = [], 0
        except BaseException as caught:
            error = caught
        with self._changed:
            self._ready += batch
            self._octets += octets
            self._error = error
            self._is_over = True
            self._changed.notify()

    def _hand_over(self, batch: list[Block], octets: int) -> bool:
        """Wait until there is room for more. False: nobody wants any more."""
        with self._changed:
            self._ready += batch
            self._octets += octets
            self._changed.notify()
            self._is_full = self._octets >= self._ahead_octets
            while self._is_full and not self._is_over:
                self._changed.wait()
            return not self._is_over
