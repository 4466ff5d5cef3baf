"""XML configurations of AMPS, whole or in fragments: queues, logged topics, actions on messages that expire.

The rest is skipped. Source: queues page A.3, H.1; seed 001; ruling 18.
"""

import re
from types import MappingProxyType

from ..declared.declarations import ANYCAST, QueueDeclaration
from ..declared.logged_topics import LoggedTopic
from ..faults import Origin
from ..leased.elements import AMPS, BY_TAG, ELEMENTS, LOCAL, MESSAGE_TYPES, NAME, SYNONYMS, TAGS
from ..leased.readers import BadValue, integer
from ..leased.topics import is_regex
from ..values import LONG_MAX, shown
from .amps_actions import Actions
from .amps_names import (
    AMPS_ROOTS,
    IDENTITY,
    LOG_SETTINGS,
    OTHER_SECTIONS,
    QUEUE_CHILDREN,
    QUEUE_TAGS,
    SECTIONS,
    SOW_OTHERS,
)
from .amps_source import Read
from .draft import Draft
from .xml_tree import Element

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kmgt]?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_ROOTS = (*SECTIONS, *QUEUE_TAGS)


def load_amps(draft: Draft, file: str, root: Element) -> None:
    """Read one file, whose root is one of `AMPS_ROOTS`, into the draft."""
    _Loader(draft, file).section(root, root.name)


class _Loader(Actions):
    def section(self, element: Element, path: str) -> None:
        """One of the elements that may be a root."""
        structures: dict[str, Read] = {
            "AMPSConfig": self.whole,
            "SOW": self.sow,
            "TransactionLog": self.transaction_log,
            "Actions": self.actions,
            "Replication": self.replication,
            **dict.fromkeys(QUEUE_TAGS, self.queue),
        }
        if (read := structures.get(element.name)) is not None:
            read(element, path)
        elif element.name in QUEUE_CHILDREN and element.name not in SOW_OTHERS:
            self.draft.fault(self.at(element), path, "means nothing without the <Queue> around it")
        else:
            self.skip_or_refuse(element, path, AMPS_ROOTS, _ROOTS)

    def whole(self, element: Element, path: str) -> None:
        """`<AMPSConfig>`."""
        for child, inner in self.parts(element, path, ("SOW", "Actions", *OTHER_SECTIONS)):
            if child.name in IDENTITY:
                if not self.text_of(child, inner):
                    self.draft.fault(self.at(child), inner, "is empty, expected the name of the instance or its group")
                self.draft.no_effect(self.at(child), inner)
            elif child.name in SECTIONS[1:] or child.name == "Replication":
                self.section(child, inner)
            elif child.name in QUEUE_TAGS:
                self.draft.fault(self.at(child), inner, "means nothing outside <SOW>")
            else:
                self.skip_or_refuse(child, inner, OTHER_SECTIONS, (*SECTIONS, *IDENTITY))

    def sow(self, element: Element, path: str) -> None:
        """`<SOW>`: queues, and topics and views that are not there."""
        for child, inner in self.parts(element, path, None):
            if child.name in QUEUE_TAGS:
                self.queue(child, inner)
            else:
                self.skip_or_refuse(child, inner, SOW_OTHERS, QUEUE_TAGS)

    # -- queues -------------------------------------------------------------------------------------------------------

    def queue(self, element: Element, path: str) -> None:
        """One queue: its elements are arguments."""
        arguments: dict[str, object] = {"x-queue-type": AMPS}
        origins: dict[str, Origin] = {}
        names: dict[str, Element] = {}
        name = ""
        for child, inner in self.children(element, path):
            text = self.text_of(child, inner)
            row = BY_TAG.get(child.name)
            if child.name == NAME or SYNONYMS.get(child.name) == NAME:
                if names and text != name:
                    self.refuse(child, inner, "E-NAME", f"Name and Topic differ: {shown(name)}, {shown(text)}")
                if not names:
                    name = text
                names[child.name] = child
            elif row is None:
                self.unknown(child, inner, QUEUE_CHILDREN)
            elif text or child.name != "Filter":  # an empty filter is none
                arguments[row.argument] = text
                origins[row.argument] = self.at(child)
        written = {row.argument: f"{path}/{row.tag}" if row.tag else path for row in ELEMENTS}
        written["name"] = path if not names else f"{path}/{next(iter(names))}"
        origins["name"] = self.at(next(iter(names.values()), element))
        if TAGS[element.name] != LOCAL:
            arguments["x-replication"] = TAGS[element.name]
        if "x-message-type" not in arguments:
            self.refuse(element, f"{path}/MessageType", "E-MTYPE")
        queue = QueueDeclaration(
            name,
            name,
            "/",
            ANYCAST,
            True,
            True,
            MappingProxyType(arguments),
            self.at(element),
            MappingProxyType(origins),
        )
        self.draft.add_queue(queue, written)

    def replication(self, element: Element, path: str) -> None:
        """Skipped but for the topics that it lists: a LocalQueue must not be one of them."""
        self.draft.no_effect(self.at(element), path)
        for destination in element.children:
            for topic in destination.children:
                for name in topic.children if topic.name == "Topic" else ():
                    if name.name == "Name" and name.value:
                        where = f"{path}/{destination.name}/Topic/Name"
                        self.draft.replicated.setdefault(name.value, (self.at(name), where))

    # -- the transaction log ------------------------------------------------------------------------------------------

    def transaction_log(self, element: Element, path: str) -> None:
        """Which topics are logged, and how large a segment is."""
        self.draft.logs.add("/")
        for child, inner in self.parts(element, path, ("Topic",)):
            if child.name == "Topic":
                self.logged_topic(child, inner)
            elif child.name not in LOG_SETTINGS:
                self.skip_or_refuse(child, inner, (), ("Topic", *LOG_SETTINGS))
            else:
                self.log_setting(child, inner)

    def log_setting(self, element: Element, path: str) -> None:
        """One of `LOG_SETTINGS`."""
        text = self.text_of(element, path)
        if element.name == "JournalSize":
            size = _octets(text)
            if size is None:
                self.draft.wrong(self.at(element), path, text, "a size like 10MB")
            else:
                self.draft.broker_value(self.at(element), "journal", "segment-size", size, path)
            return
        if element.name == "PreallocatedJournalFiles":
            try:
                integer(1)(text)
            except BadValue as error:
                self.refuse(element, path, error.code, str(error))
                return
        elif not text:
            self.draft.fault(self.at(element), path, "is empty, expected a directory")
            return
        self.draft.no_effect(self.at(element), path, LOG_SETTINGS[element.name])

    def logged_topic(self, element: Element, path: str) -> None:
        """A topic by its name, or those that a regular expression is found in."""
        given: dict[str, str] = {}
        for child, inner in self.children(element, path):
            if child.name in ("Name", "MessageType"):
                given[child.name] = self.text_of(child, inner)
            else:
                self.unknown(child, inner, ("Name", "MessageType"))
        name, message_type = given.get("Name", ""), given.get("MessageType", "")
        if not 0 < len(name.encode("utf-8", "replace")) <= 255:
            self.refuse(element, f"{path}/Name", "E-NAME", shown(name) if name else "")
        elif message_type not in MESSAGE_TYPES:
            self.refuse(element, f"{path}/MessageType", "E-MTYPE", shown(message_type) if message_type else "")
        else:
            topic = LoggedTopic(name, is_regex(name), "/", message_type, origin=self.at(element))
            self.draft.add_logged_topic(topic, f"{path}/Name")


def _octets(text: str) -> int | None:
    """AMPS' sizes, powers of 1024 (queues page H.2)."""
    found = _SIZE.fullmatch(text)
    size = int(float(found[1]) * 1024 ** _POWERS[found[2].lower()]) if found else 0
    return size if 0 < size <= LONG_MAX else None
