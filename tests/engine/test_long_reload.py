"""Reloaded settings reach very many queues a slice at a time; counted in queues, never in time."""

from leveret.engine import Broker, ManualClock
from leveret.engine.declared_exchanges import EXCHANGES_SLICE
from leveret.engine.reloading import CONCERNED_SLICE, SETTINGS_SLICE
from leveret.settings import Policies, SettingsRepository, entry, make_policy

COUNT = 10 * SETTINGS_SLICE


def followers(broker: Broker, attempts: int | None) -> int:
    """Queues that have these settings."""
    return sum(queue.rules.max_delivery_attempts == attempts for queue in broker.virtual_hosts.queues())


def filled() -> Broker:
    """A broker with so many queues in two virtual hosts."""
    broker = Broker(ManualClock())
    for vhost in (broker.virtual_hosts["/"], broker.virtual_hosts.create("other")):
        for number in range(COUNT // 2):
            vhost.queues.create(f"q{number}", is_auto_created=False)
    return broker


def test_queues_follow_in_slices() -> None:
    """Some at once, some more with each turn; new queues are born with them."""
    broker = filled()
    broker.reloading.replace_settings(SettingsRepository([entry("#", max_delivery_attempts=7)]))
    slices = [followers(broker, 7)]
    born = broker.virtual_hosts["/"].queues.create("new", is_auto_created=False)
    assert born.rules.max_delivery_attempts == 7
    is_more = True
    while is_more:
        before = followers(broker, 7)
        is_more = broker.end_turn()
        slices.append(followers(broker, 7) - before)
    assert followers(broker, 7) == COUNT + 1
    assert max(slices) == SETTINGS_SLICE and min(slices) >= 0


def test_the_last_settings_hold() -> None:
    """They are reloaded while queues still hear of those before; some are deleted meanwhile."""
    broker = filled()
    for attempts in (7, 8):
        broker.reloading.replace_settings(SettingsRepository([entry("#", max_delivery_attempts=attempts)]))
        broker.end_turn()
    gone = list(broker.virtual_hosts["other"].queues.values())[-1]
    broker.virtual_hosts["other"].queues.remove(gone)
    while broker.end_turn():
        pass
    assert followers(broker, 8) == COUNT - 1 and gone.rules.max_delivery_attempts not in (7, 8)


def test_an_exchange_goes_while_others_still_follow_a_policy() -> None:
    """The policy has just named its alternate exchange, or another one: it goes with its bindings, and is told of."""
    broker = Broker(ManualClock())
    vhost = broker.virtual_hosts["/"]
    for number in range(EXCHANGES_SLICE + 1):
        vhost.exchanges.declare(f"x{number}", "direct")
    told: list[str] = []
    broker.context.listeners.append(lambda event: told.append(f"{event.kind.value} {event.subject}"))
    for name, alternate in (("x0", "amq.fanout"), ("x1", "amq.topic")):
        policy = make_policy("p", "/", "^x", {"alternate-exchange": alternate}, apply_to="exchanges")
        broker.reloading.replace_policies(Policies([policy]))
        assert vhost.exchanges[name].alternate == alternate != vhost.exchanges[f"x{EXCHANGES_SLICE}"].alternate
        vhost.bindings.add("exchange", name, "amq.direct", "", {})
        vhost.exchanges.delete(name)
        assert told[-2:] == [f"undeclared {name}", f"unbound {name}"]
        while broker.end_turn():
            pass
    assert not vhost.bindings.count and not vhost.exchanges["amq.direct"].bindings
    assert vhost.exchanges[f"x{EXCHANGES_SLICE}"].alternate == "amq.topic"


def test_a_policy_that_concerns_many_queues_reaches_them_in_slices() -> None:
    """Some at once, as many more with each turn, and in the end all."""
    broker = filled()
    policy = make_policy("p", "/", "^q", {"max-length": 7}, apply_to="queues")
    queues = broker.virtual_hosts["/"].queues.values()

    def count() -> int:
        return sum(queue.rules.max_length == 7 for queue in queues)

    broker.reloading.replace_policies(Policies([policy]))
    slices, is_more = [count()], True
    while is_more:
        is_more = broker.end_turn()
        slices.append(count() - sum(slices))
    assert max(slices) == slices[0] == CONCERNED_SLICE
    assert sum(slices) == count() == len(queues)
