"""Reloaded settings reach very many queues a slice at a time; counted in queues, never in time."""

from leveret.engine import Broker, ManualClock
from leveret.engine.reloading import SETTINGS_SLICE
from leveret.settings import SettingsRepository, entry

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
