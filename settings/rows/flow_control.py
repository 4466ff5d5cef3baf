"""Flow control of the whole broker: the tables [system-usage] (limits) and [flow] (blocked publishes).

Limits of an address are address-settings. Source: queues page E.1, E.3 to E.5; interfaces page, "Configuration keys".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..frozen import frozen
from ..values import BOOLEAN, BYTES, DELAY, SIZE_UNITS, Kind, size_bytes
from .row import setting

KIB, MIB, GIB = 1024, 1024**2, 1024**3

#: Octets below the limit at which blocked publishes continue; at least 5 and at most 50 per cent of the limit.
_LOW_MARK_DISTANCE = 64 * KIB

_PERCENT = re.compile(r"\s*(100|[1-9][0-9]?)\s*%\s*")


def size_or_percent(value: object) -> int | str:
    """Octets, or a percentage such as "70%" as text."""
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        return f"{match[1]}%"
    try:
        return size_bytes(value)
    except ValueError as error:
        raise ValueError(f'{error}, or a percentage: "70%"') from None


def percentage(value: object) -> int:
    """1 to 100, from an integer or text such as "95%"."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 100:
        return value
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
        return int(match[1])
    raise ValueError('a percentage from 1 to 100, or text like "95%"')


def products(value: object) -> tuple[str, ...]:
    """false for none, or a list of products."""
    if value is False:
        return ()
    if isinstance(value, list) and value and all(isinstance(item, str) and item for item in value):
        return tuple(value)
    raise ValueError('false, or a list of client products: ["RabbitMQ"]')


SIZE_OR_PERCENT = Kind(size_or_percent, units=SIZE_UNITS)
PERCENTAGE = Kind(percentage)
PRODUCTS = Kind(products)


@frozen
class SystemUsage:
    """[system-usage]: octets for messages in memory, in the journal, and in the temporary store; 0: no limit.

    `..._percent`: of the memory of the process, or of the disk; 0: the limit is given in octets.
    """

    memory: int = 64 * MIB
    store: int = 100 * GIB
    temp: int = 10 * GIB
    send_fail_if_no_space: bool = False
    send_fail_if_no_space_after_ms: int = 0  # 0: no timeout
    memory_percent: int = 0
    store_percent: int = 0
    temp_percent: int = 0

    def sized(self, *, memory: int, disk: int) -> "SystemUsage":
        """The limits in octets. Args: memory: octets that the process may use; disk: octets of the disk."""
        return replace(
            self,
            memory=memory * self.memory_percent // 100 if self.memory_percent else self.memory,
            store=disk * self.store_percent // 100 if self.store_percent else self.store,
            temp=disk * self.temp_percent // 100 if self.temp_percent else self.temp,
            memory_percent=0,
            store_percent=0,
            temp_percent=0,
        )


# fmt: off
@dataclass(init=False, repr=False, eq=False)
class UsageKeys:
    """The keys of [system-usage]; `SystemUsage` is the result."""

    memory: int | str = setting(SIZE_OR_PERCENT, SystemUsage().memory,
        help="Memory for messages of all addresses together: octets, or a share (`70%`) of what the process may use; "
        "0 is no limit.")
    store: int | str = setting(SIZE_OR_PERCENT, SystemUsage().store,
        help="Octets of persistent messages, or a share of the disk; the journal takes more; 0 is no limit.")
    temp: int | str = setting(SIZE_OR_PERCENT, SystemUsage().temp,
        help="Size of the temporary store, in octets or as a share of its disk; 0 is no limit.")
    send_fail_if_no_space: bool = setting(BOOLEAN, False,
        help="Whether a publish for which there is no space is refused at once instead of held.")
    send_fail_if_no_space_after_ms: int = setting(DELAY, 0,
        help="How long such a publish is held before it is refused; 0 is for ever.")


@frozen
class Flow:
    """[flow]: limits on blocked publishes. Octets and milliseconds; sizes are those of one connection."""

    low_mark_percent: int | None = setting(PERCENTAGE, None, key="low-mark",
        help="Percentage of a limit at which held publishes continue; unset: 64 KiB below it, within 50 to 95 %.")
    max_stall_ms: int = setting(DELAY, 0,
        help="How long a connection may be unread without progress before it is closed; 0 is for ever.")
    hold_size: int = setting(BYTES, MIB, key="hold-bytes",
        help="Memory for held publishes of one connection; of all: 5 % of `memory` of [system-usage], if set.")
    hold_spool_size: int = setting(BYTES, 64 * MIB, key="hold-spool",
        help="Held publishes of one connection in the temporary store, beyond `hold-bytes`.")
    channel_flow_products: tuple[str, ...] = setting(PRODUCTS, (), key="use-channel-flow",
        help="`false`, or the client products that get `channel.flow` while their publishes are held.")
    # fmt: on

    def low_mark(self, limit: int) -> int:
        """The low mark in octets: a limit that was reached stays full until usage has fallen to its mark.

        The mark is below `limit`, which is above 0.
        """
        if self.low_mark_percent:
            return min(limit * self.low_mark_percent // 100, limit - 1)
        return min(limit * 95 // 100, max(limit - _LOW_MARK_DISTANCE, limit // 2))

    def low_mark_messages(self, limit: int) -> int:
        """Like `low_mark`, for a limit that counts messages."""
        if self.low_mark_percent:
            return min(limit * self.low_mark_percent // 100, limit - 1)
        return limit - max(1, limit * 5 // 100)


@frozen
class WholeLimits:
    """Limits for all addresses together; when one is reached, every address counts as full. None: no limit."""

    octets_max: int | None = None
    messages_max: int | None = None


NO_WHOLE_LIMITS = WholeLimits()


def system_usage_of(values: Mapping[str, Any]) -> SystemUsage:
    """The limits that the keys of [system-usage] set; other limits have their defaults."""
    given: dict[str, Any] = {}
    for key in ("memory", "store", "temp"):
        limit = values.get(key)
        if isinstance(limit, str):
            given[f"{key}_percent"] = int(limit.rstrip("%"))
        elif limit is not None:
            given[key] = limit
    for key, attribute in (
        ("send-fail-if-no-space", "send_fail_if_no_space"),
        ("send-fail-if-no-space-after", "send_fail_if_no_space_after_ms"),
    ):
        if key in values:
            given[attribute] = values[key]
    return SystemUsage(**given)
