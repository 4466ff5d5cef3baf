"""Which topics a queue selects: one by its name, or those in which a regular expression is found.

Source: queues page A.2, A.3 (UnderlyingTopic; conflict K11: a dot alone makes no regular expression).
"""

from collections.abc import Callable

_REGEX_CHARACTERS = frozenset("^$*+?()[]{}|\\")


def is_regex(topic: str) -> bool:
    """Whether an UnderlyingTopic is a regular expression, not a name."""
    return not _REGEX_CHARACTERS.isdisjoint(topic)


def selects(topic: str) -> Callable[[str], bool]:
    """Whether an UnderlyingTopic selects the topic of that name. A regular expression is searched, in linear time.

    Raises: PatternFault.
    """
    if not is_regex(topic):
        return topic.__eq__
    from ...expressions.patterns.patterns import Pattern  # 5 ms that others need not wait

    return Pattern(topic).search
