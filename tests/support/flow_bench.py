"""A broker with limits and publishers that wait, face to face with the engine: each does what a frontend has to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from simulated_files import SimulatedFiles

from leveret.engine import (
    BrokerOptions,
    Client,
    Envelope,
    FullLimit,
    PropertySummary,
    Queue,
    Session,
    TempStore,
    User,
)
from leveret.engine.messages.content import NATIVE, encode_header
from leveret.journal import JournalOptions
from leveret.settings import NO_WHOLE_LIMITS, SettingsRepository, SystemUsage, WholeLimits, entry
from leveret.testing.harness import GUEST, Harness
from leveret.testing.memory_pager import MemoryPager

MIB = 1024 * 1024
#: A header without properties.
HEADER = encode_header(0)


def make_content(size: int) -> bytes:
    """A message of so many octets."""
    return NATIVE.join(HEADER, bytes(size - len(NATIVE.join(HEADER, b""))))


def saying(text: str) -> bytes:
    """A message with that body."""
    return NATIVE.join(HEADER, text.encode())


class Publisher:
    """A confirming publisher on a connection of its own: `wants` are the messages that it holds."""

    def __init__(self, bench: FlowBench, name: str, user: User = GUEST) -> None:
        self.bench = bench
        self.client: Client = bench.broker.connections.open("/", user, name=name, flush=lambda: None)
        self.session: Session = self.client.open_session()
        self.session.select_confirms()
        self.wants: deque[bytes] = deque()
        self.published = 0
        self._confirmed = 0
        self.refused = 0
        self.full: FullLimit | None = None

    def join(self, other: Publisher) -> None:
        """Publish on a channel of another one's connection."""
        self.client = other.client
        self.session = self.client.open_session()
        self.session.select_confirms()

    def publish(self, *contents: bytes, to: str = "q") -> None:
        """As a frontend does: what there is no room for waits, behind what waits already."""
        self.to = to
        waited = bool(self.wants)
        self.wants += contents
        if not waited:
            self._go_on(1 << 60, 1 << 60)

    def outcomes(self) -> str:
        """What was confirmed since this was last asked: A for each ack, N for each nack, in order of the tags."""
        assert self.session.confirms is not None
        outcomes = ""
        for tag, _, is_ack in self.session.confirms.take():  # one that is not multiple is the next one
            outcomes += ("A" if is_ack else "N") * (tag - self._confirmed)
            self._confirmed = tag
        return outcomes

    def resume(self, octets: int, messages: int) -> tuple[int, int]:
        return self._go_on(octets, messages)

    def _go_on(self, octets: int, messages: int) -> tuple[int, int]:
        used, before = 0, messages
        while self.wants:
            offer = self.session.publish_with_room(
                self.bench.route(self.to),
                Envelope("", self.to, self.bench.summary),
                list(self.wants),
                mandatory=False,
                octets_max=octets - used,
                messages_max=messages,
            )
            for _ in range(offer.taken):
                used += len(self.wants.popleft())
            messages -= offer.taken
            self.published += offer.taken
            if offer.full is not None:
                self.full = offer.full
                if not self.full.fails:
                    break
                self.wants.popleft()
                self.session.count_unpublished(1, refused=True)
                self.refused += 1
            elif not offer.taken:
                break  # the quantum is used up
        if self.wants:
            assert self.full is not None
            self.bench.broker.flow.wait(self.full, self.client, self)
        return used, before - messages


class FlowBench(Harness):
    """One broker with settings for the queue `q`, and a consumer that only gets.

    `pager`, `open_temp`: where messages go that leave memory; without them none do.
    """

    ends_turns = False

    def __init__(
        self,
        *,
        system: SystemUsage | None = None,
        whole: WholeLimits = NO_WHOLE_LIMITS,
        pager: MemoryPager | None = None,
        open_temp: Callable[[], TempStore] | None = None,
        journal: SimulatedFiles | None = None,
        memory: int | None = None,
        **settings: object,
    ) -> None:
        self.pager, self.open_temp = pager, open_temp
        repository, options = _configured(system, whole, settings)
        super().__init__(
            repository,
            journal=journal,
            journal_options=JournalOptions(segment_size=1 << 20),
            memory=memory,
            options=options,
            unsent_max=1 << 40,
        )

    def begin(self) -> None:
        super().begin()
        storage = self.broker.context.storage
        if self.pager is not None:
            storage.pager = self.pager
        if self.open_temp is not None:
            storage.open_temp = self.open_temp
        self.summary = PropertySummary()
        self.q: Queue = self.queue()
        self.consumer = self.session

    def configure(
        self, *, system: SystemUsage | None = None, whole: WholeLimits = NO_WHOLE_LIMITS, **settings: object
    ) -> None:
        """The configuration is another one now."""
        self.broker.reloading.replace_settings(*_configured(system, whole, settings))
        self.end_turn()

    def take(self, count: int = 1, queue: str | Queue = "q") -> list[bytes]:
        bodies = super().take(count, queue)
        self.end_turn()
        return bodies

    @property
    def used(self) -> int:
        return self.broker.flow.nodes()[-1].used


def _configured(
    system: SystemUsage | None, whole: WholeLimits, settings: dict[str, object]
) -> tuple[SettingsRepository, BrokerOptions]:
    return (
        SettingsRepository([entry("q", **settings)], usage=system),
        BrokerOptions(system_usage=system, whole_limits=whole),
    )
