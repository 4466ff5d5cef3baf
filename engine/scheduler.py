"""When queues have their turns: before the turn of the frontend ends, between turns, or when the journal got on."""

from typing import TYPE_CHECKING, TypeAlias

from .context import BrokerContext

if TYPE_CHECKING:
    from .publishing.firehose import Firehose
    from .queues.queue import Queue

    Marked: TypeAlias = Queue | Firehose


class Scheduler:
    """Of one broker. `marked`: what has a turn before this one ends; `hungry`: queues that want more of their tails in
    memory; `awaiting`: queues that have a turn when more is safe.

    `round`: of turns, since the broker started; `round_width`: how many queues have a turn in it.
    """

    __slots__ = ("_ahead", "_context", "_is_on", "awaiting", "hungry", "marked", "round", "round_width")

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.marked: dict[Marked, None] = {}
        self._ahead: list[Marked] = []  # of those that were marked, the next one last
        self._is_on = False
        self.hungry: dict[Queue, None] = {}
        self.awaiting: dict[Queue, None] = {}
        self.round = 0
        self.round_width = 1

    # -- before the turn ends -----------------------------------------------------------------------------------------

    def mark(self, queue: "Marked") -> None:
        """Look at this queue again before the turn ends."""
        self.marked[queue] = None

    def is_marked(self, queue: "Queue") -> bool:
        """Whether it will be looked at."""
        return queue in self.marked

    def waiting_count(self) -> int:
        """While the marked queues have their turns: how many of them wait for theirs."""
        return len(self.marked) if self._is_on else 0

    def dispatch_now(self, queue: "Queue") -> None:
        """Hand out before somebody looks into the queue: what waiting consumers could take is theirs."""
        context = self._context
        if context.dead_letters.waiting:
            crowded = context.congestion.queue
            context.dead_letters.publish()
            context.congestion.queue = crowded
        if queue.store.expiring:
            queue.expire_now()
        if queue in self.marked:
            del self.marked[queue]
            if not queue.deleted:
                queue.dispatch()

    def dispatch(self) -> None:
        """All marked queues in the order of the marks; those that are marked meanwhile come behind them."""
        marked = self.marked
        if len(marked) == 1:
            queue, _ = marked.popitem()
            if not queue.deleted:
                queue.dispatch()
            return
        ahead, effort = self._ahead, self._context.effort
        self._is_on = True
        try:
            while marked:
                if not ahead:
                    ahead.extend(reversed(marked))
                    self.round += 1
                    self.round_width = len(ahead)
                queue = ahead.pop()
                if queue in marked:
                    del marked[queue]
                    if not queue.deleted:
                        queue.dispatch()
                        if effort.spent >= effort.turn_max:
                            break
        finally:
            self._is_on = False

    # -- later --------------------------------------------------------------------------------------------------------

    def load_later(self, queue: "Queue") -> None:
        """Bring some of what is paged out into memory between turns."""
        self.hungry[queue] = None

    def load(self) -> bool:
        """Between turns: bring a slice of some queue's tail into memory. True: there is more to do now."""
        hungry = self.hungry
        if not hungry:
            return False
        queue = next(iter(hungry))  # the one that has waited longest
        del hungry[queue]
        if queue.deleted:
            return bool(hungry)
        if queue.is_hungry():  # else something else loaded it meanwhile, such as a get, and its consumers still wait
            queue.load()
        self.mark(queue)
        if queue.is_hungry():
            hungry[queue] = None
        return True

    def await_safe(self, queue: "Queue") -> None:
        """Dispatch it when the journal got on."""
        self.awaiting[queue] = None

    def more_is_safe(self) -> bool:
        """The journal got on, or failed. Returns whether queues waited for that."""
        if not self.awaiting:
            return False
        for queue in self.awaiting:
            queue.mark()
        self.awaiting.clear()
        return True
