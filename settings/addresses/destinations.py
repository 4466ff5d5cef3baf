"""Destination policies, as in ActiveMQ: entries that are not merged with each other; at most one applies to a queue or
topic.

That entry is a layer over the merged address-settings. Names consist of words separated by `.`; in an entry's name `*`
is any one word and a last `>` zero or more words. Source: queues page E.1, "wildcards", and E.2.
"""

from collections.abc import Iterable

from .entries import Entry, EntryIndex
from .matching import EXACT, Match, MatchFault, Wildcards, parse_match

#: ActiveMQ's wildcards, independent of [wildcard-addresses].
WILDCARDS = Wildcards(".", ">", "*")

#: Names of entries in reports.
QUEUE_ENTRY, TOPIC_ENTRY, DEFAULT_ENTRY = "queue policy", "topic policy", "default policy"


class DestinationPolicies:
    """The destination policies of a configuration. Raises: DuplicateMatch.

    Args: queues, topics: with matches of `parse_destination`.
          default: for every queue and topic that no other entry covers.
    """

    def __init__(
        self, queues: Iterable[Entry] = (), topics: Iterable[Entry] = (), default: Entry | None = None
    ) -> None:
        self.queues, self.topics, self.default = tuple(queues), tuple(topics), default
        self._queues, self._topics = _index(self.queues), _index(self.topics)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (*self.queues, *self.topics, *(() if self.default is None else (self.default,)))

    def for_queue(self, name: str) -> Entry | None:
        """The entry that applies to a queue of that name."""
        return self._chosen(self._queues, name)

    def for_topic(self, name: str) -> Entry | None:
        """The entry that applies to a topic: to publishes with that routing key or to that exchange."""
        return self._chosen(self._topics, name)

    def _chosen(self, index: EntryIndex, name: str) -> Entry | None:
        found = index.matches(name, name.split(WILDCARDS.delimiter))
        if not found:
            return self.default
        if found[0].match.kind is EXACT:
            return found[0]
        narrowest = [one for one in found if not any(_is_wider(one.match, other.match) for other in found)]
        return min(narrowest, key=lambda one: one.match.text)


def parse_destination(text: str) -> Match:
    """Parse the name of an entry: a pattern, or one queue or topic. Raises: MatchFault."""
    if "" in text.split(WILDCARDS.delimiter):
        raise MatchFault("an element is empty" if text else "an empty name covers nothing")
    if "," in text:
        raise MatchFault("several destinations in one entry, expected an entry for each")
    return parse_match(text, WILDCARDS)


def _index(entries: Iterable[Entry]) -> EntryIndex:
    index = EntryIndex()
    for one in entries:
        index.add(one)
    return index


def _is_wider(one: Match, other: Match) -> bool:
    """Whether one covers all names that the other covers, and more."""
    return _covers(one, other) and not _covers(other, one)


def _covers(wide: Match, narrow: Match) -> bool:
    if wide.has_any_words:
        if len(wide.words) > len(narrow.words):
            return False
    elif narrow.has_any_words or len(wide.words) != len(narrow.words):
        return False
    return all(word is None or word == other for word, other in zip(wide.words, narrow.words))


NO_DESTINATIONS = DestinationPolicies()
