"""The engine's `Pager`: reads the messages of a deep queue's tail from the journal.

Source: queues page F; rulings 5 and 23.
"""

import contextlib
from collections.abc import Iterator, Sequence

from ...engine import NATIVE, Broker, CommonHeader, Envelope, PropertySummary, Unreadable, scan_properties
from ...engine.state import Run
from ..appending.journal import Journal
from ..format.errors import JournalError
from ..format.names import Names
from ..recovery.content_reader import ContentRun
from .recorder import Recorder
from .retry import pause, retry_blocking

#: Property lists and envelopes that are cached. The caches are cleared when they are full.
CACHED_MAX = 512
#: Offset of the property list in a content of the engine's framing.
PROPERTIES_AT = 16


class JournalPager:
    """Reads paged-out messages. `memory`: octets that all deep queues together may keep (limits.memory)."""

    pause = staticmethod(pause)

    def __init__(self, broker: Broker, journal: Journal, recorder: Recorder, memory: int) -> None:
        self._broker = broker
        self._journal = journal
        self._index = recorder.messages.contents
        self.memory = memory
        self._envelopes = EnvelopeCache(journal.names)

    def budget(self) -> int:
        """All deep queues get equal shares."""
        deep = sum(queue.paged_count > 0 for queue in self._broker.virtual_hosts.queues())
        return self.memory // (deep + 1)

    def load(self, ids: Sequence[int]) -> list[Run]:
        try:
            return retry_blocking(lambda: self._load(ids), self._journal.contents.close, self.pause)
        except (JournalError, OSError) as error:
            raise self._unreadable(f"messages {ids[0]} to {ids[-1]} cannot be read back: {error}") from error

    def has(self, id_: int) -> bool:
        return self._index.lsn_of(id_) is not None

    def _unreadable(self, text: str) -> Unreadable:
        with contextlib.suppress(OSError):
            if not self._journal.is_there:
                text = f"data directory {self._journal.path}: is gone"
        error = Unreadable(text)
        self._broker.context.storage.on_unreadable(error)
        return error

    def _load(self, ids: Sequence[int]) -> list[Run]:
        journal, index = self._journal, self._index
        found: list[Run] = []
        contents: list[bytes] = []
        before: Envelope | None = None
        for _, lsn, count in index.runs(ids):
            for run in journal.contents.runs(lsn, count):
                for envelope, part in self._by_properties(run):
                    if envelope is not before:
                        before, contents = envelope, []
                        found.append((envelope, contents))
                    contents += part
        return found

    def _by_properties(self, run: ContentRun) -> Iterator[Run]:
        """The run's contents in parts with the same properties. Raises: Damaged."""
        if run.header is not None:
            yield self._envelope_of(run, run.header[PROPERTIES_AT - 4 :], run.header), run.contents
            return
        length, properties = b"", b""
        envelope: Envelope | None = None
        start = 0
        contents = run.contents
        for at, content in enumerate(contents):
            if envelope is not None and content.startswith(length) and content.startswith(properties, PROPERTIES_AT):
                continue
            if envelope is not None:
                yield envelope, contents[start:at]
            start = at
            length = content[:4]
            properties = content[PROPERTIES_AT : 4 + int.from_bytes(length, "big")]
            envelope = self._envelope_of(run, properties)
        assert envelope is not None
        yield envelope, contents[start:] if start else contents

    def _envelope_of(self, run: ContentRun, properties: bytes, header: bytes | None = None) -> Envelope:
        return self._envelopes.of(run.exchange_id, run.routing_key, properties, run.cause_id, header)


class EnvelopeCache:
    """Makes the envelopes of messages that are read back, and caches them."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._summaries: dict[bytes, PropertySummary] = {}
        self._envelopes: dict[tuple[int, bytes, PropertySummary, int, bytes | None], Envelope] = {}

    def of(
        self, exchange_id: int, routing_key: bytes, properties: bytes, cause_id: int, header: bytes | None = None
    ) -> Envelope:
        """The envelope of a message with this property list. `header`: see `ContentRun`."""
        summary = self._summaries.get(properties)
        if summary is None:
            if len(self._summaries) >= CACHED_MAX:
                self._summaries.clear()
            summary = scan_properties(properties)
            if not summary.persistent:
                summary = summary._replace(persistent=True)  # a quorum queue stores transient messages, too
            self._summaries[properties] = summary
        key = (exchange_id, routing_key, summary, cause_id, header)
        envelope = self._envelopes.get(key)
        if envelope is None:
            if len(self._envelopes) >= CACHED_MAX:
                self._envelopes.clear()
            framing = NATIVE if header is None else CommonHeader(header)
            envelope = Envelope(self._names.text(exchange_id), routing_key.decode(), summary, framing)
            envelope.cause_id = envelope.first_id = cause_id
            self._envelopes[key] = envelope
        return envelope
