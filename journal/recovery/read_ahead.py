"""A thread that reads and checks blocks ahead while the broker handles the blocks before them.

Reading a file and computing a CRC do not hold the interpreter's lock, and a deep queue is drained in order.
"""

from collections import deque
from collections.abc import Iterator
from threading import Condition, Thread

from ..format.block import Block

#: Octets of blocks that are read ahead at most: a fast consumer takes them in some 10 ms.
AHEAD_OCTETS = 4 * 1024 * 1024
#: Octets of blocks that are handed over together: at each handover the threads wait for one another.
BATCH_OCTETS = 512 * 1024


class ReadAhead(Iterator[Block]):
    """Yields the blocks of an iterator, which this object's thread reads from the second one on.

    The caller's thread reads the first, so that a single block costs no thread. An error is raised in place of the
    block that could not be read.
    """

    def __init__(self, blocks: Iterator[Block], ahead_octets: int = AHEAD_OCTETS) -> None:
        self._blocks = blocks
        self._ahead_octets = ahead_octets
        self._changed = Condition()
        self._ready: deque[Block] = deque()
        self._octets = 0
        self._is_full = False  # until half is taken: each time the thread wakes, it takes the interpreter's lock
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
            except RuntimeError:  # the system cannot start another thread now: this one reads
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
        """Stop reading; when this returns, the thread has ended."""
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
        """Hand blocks over, then wait until there is room for more. False: closed."""
        with self._changed:
            self._ready += batch
            self._octets += octets
            self._changed.notify()
            self._is_full = self._octets >= self._ahead_octets
            while self._is_full and not self._is_over:
                self._changed.wait()
            return not self._is_over
