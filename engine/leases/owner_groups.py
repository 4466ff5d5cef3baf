"""Filter groups of a queue whose messages have owners (sites): one for each owner and each filter of a consumer.

A message is found by the groups of its owner only. A consumer gets messages of its own site first, and those of other
sites when they are transferred (`by_site.py`).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from ...settings.slotted import slotted
from ..delivery.consumer import Consumer
from ..delivery.filter_groups import FilterGroup, FilterGroups, FilterTest
from ..messages.message import Message
from .owners import Owners

if TYPE_CHECKING:
    from ...expressions.language import Expression
    from ..context import BrokerContext


@slotted
class OwnedFilter:
    """Selects the messages of one owner that a filter takes (None: all). Used as the expression of a `FilterGroup`."""

    number: int
    filter: "Expression | None"


class OwnedFilterTest(FilterTest):
    """Tests a message that has an owner. `number`: that of the owner."""

    __slots__ = ("_number",)

    def __init__(self, message: Message, broker: "BrokerContext", number: int) -> None:
        super().__init__(message, broker)
        self._number = number

    def is_taken_by(self, expression: "Expression | OwnedFilter | None") -> bool:
        if isinstance(expression, OwnedFilter):
            return expression.number == self._number and super().is_taken_by(expression.filter)
        return super().is_taken_by(expression)


class OwnerGroups(FilterGroups):
    """The groups by owner and filter. `filters`: those of the consumers, by key.

    A group is in two tables with the same keys: `_by_key`, which the base class searches, and `_groups`, whose keys are
    typed.
    """

    def __init__(self, broker: "BrokerContext", owners: Owners) -> None:
        super().__init__(broker)
        self._owners = owners
        self._groups: dict[tuple[int, object], FilterGroup] = {}
        self._counts: dict[object, int] = {}  # key of a filter -> number of consumers with it
        self.filters: dict[object, Expression | None] = {}

    @property
    def must_search(self) -> bool:
        """Whether there are consumers: even one without a filter may get the messages of some owners only."""
        return bool(self._counts)

    def of(self, consumer: Consumer) -> FilterGroup:
        """The group of the consumer's filter and its own site."""
        return self.group(self._owners.number_of_site(consumer.client.site or self._owners.own), key_of(consumer))

    def join(self, consumer: Consumer) -> FilterGroup:
        key = key_of(consumer)
        self._counts[key] = self._counts.get(key, 0) + 1
        self.filters[key] = consumer.filter
        return self.of(consumer)

    def leave(self, consumers: Iterable[Consumer]) -> None:
        for consumer in consumers:
            key = key_of(consumer)
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key], self.filters[key]
                for number in range(len(self._owners.names)):
                    self._drop(number, key)

    def _drop(self, number: int, key: object) -> None:
        group = self._groups.pop((number, key), None)
        self._by_key.pop((number, key), None)
        for returned in self.returned if group is not None else ():
            if group in returned.groups:
                returned.groups.remove(group)

    def group(self, number: int, key: object) -> FilterGroup:
        """The group of an owner and a filter. A new one begins at the head."""
        group = self._groups.get((number, key))
        if group is None:
            group = FilterGroup(cast("Expression", OwnedFilter(number, self.filters[key])))
            self._groups[number, key] = self._by_key[number, key] = group
        return group

    def test_of(self, message: Message) -> FilterTest:
        return OwnedFilterTest(message, self._broker, self._owners.owner_of(message.id))


def owner_in(group: FilterGroup) -> int:
    """The number of the owner whose messages a group finds."""
    owned = cast(object, group.expression)
    assert isinstance(owned, OwnedFilter)
    return owned.number


def key_of(consumer: Consumer) -> object:
    """The key of a consumer's filter."""
    return None if consumer.filter is None else consumer.filter.key
