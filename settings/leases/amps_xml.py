"""XML configurations of AMPS, whole or in fragments: queues, logged topics, actions on messages that expire.

The rest is skipped. Source: queues page A.3, H.1; seed 001; ruling 18.
"""

import re
from collections.abc import Callable

from ..declared.declarations import LoggedTopic, QueueDeclaration
from ..faults import Origin
from ..files.builder import ConfigurationBuilder
from ..foreign.xml_tree import Element
from ..values import LONG_MAX, MESSAGE_TYPES, shown
from .amps_actions import read_actions
from .amps_source import AmpsSource
from .checks import AmpsNotes
from .element_values import BadValue, integer
from .leased_settings import AMPS, BY_TAG, ELEMENTS, LOCAL, NAME, SYNONYMS, TAGS, is_regex

#: The root of a whole file, and its sections that are read.
SECTIONS = ("AMPSConfig", "SOW", "TransactionLog", "Actions")
#: Elements that identify the instance.
IDENTITY = ("Name", "Group")
#: Sections of `AMPSConfig` that are skipped; of `Replication` the topics are noted. Unknown sections are skipped, too,
#: unless the name is similar to that of a section that is read.
OTHER_SECTIONS = frozenset(
    ("Admin", "Authentication", "Entitlement", "Extensions", "Logging", "MessageTypes", "Modules", "Protocols")
    + ("Replication", "Transports", "Tuning")
)
#: Children of `SOW` besides queues that could be taken for a misspelled queue.
SOW_OTHERS = frozenset(("Topic", "TopicDefinition", "View", "ViewDefinition", "ConflatedTopic"))

#: Children of `TransactionLog` besides `Topic`: the reason why there is no counterpart; empty: it is read.
LOG_SETTINGS = {
    "JournalDirectory": "[broker] data says where the journal is",
    "JournalArchiveDirectory": "segments that nobody needs are deleted, or kept as [journal] retain says",
    "PreallocatedJournalFiles": "[journal] reserve keeps space for what must not fail on a full disk",
    "JournalSize": "",
    "MinJournalSize": "",  # the same in older files
}

QUEUE_TAGS = tuple(TAGS)
#: All possible children of a queue.
QUEUE_CHILDREN = (NAME, *SYNONYMS, *BY_TAG)

#: Elements that an AMPS file, or a part of one, may begin with. Children of a queue alone are refused.
AMPS_ROOTS = frozenset((*SECTIONS, *QUEUE_TAGS, *OTHER_SECTIONS, *SOW_OTHERS, *QUEUE_CHILDREN))

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kmgt]?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_ROOTS = (*SECTIONS, *QUEUE_TAGS)


def load_amps(builder: ConfigurationBuilder, file: str, root: Element) -> None:
    """Read one file, whose root is one of `AMPS_ROOTS`, into the builder."""
    _read_section(AmpsSource(builder, file), root, root.name)


def _read_section(source: AmpsSource, element: Element, path: str) -> None:
    """Read one of the possible root elements."""
    if (read := READERS.get(element.name)) is not None:
        read(source, element, path)
    elif element.name in QUEUE_CHILDREN and element.name not in SOW_OTHERS:
        source.fault(element, path, "means nothing without the <Queue> around it")
    else:
        source.skip_or_refuse(element, path, AMPS_ROOTS, _ROOTS)


def _read_whole(source: AmpsSource, element: Element, path: str) -> None:
    """Read `<AMPSConfig>`."""
    for child, inner in source.parts(element, path, ("SOW", "Actions", *OTHER_SECTIONS)):
        if child.name in IDENTITY:
            if not source.text_of(child, inner):
                source.fault(child, inner, "is empty, expected the name of the instance or its group")
            source.no_effect(child, inner)
        elif child.name in SECTIONS[1:] or child.name == "Replication":
            _read_section(source, child, inner)
        elif child.name in QUEUE_TAGS:
            source.fault(child, inner, "means nothing outside <SOW>")
        else:
            source.skip_or_refuse(child, inner, OTHER_SECTIONS, (*SECTIONS, *IDENTITY))


def _read_sow(source: AmpsSource, element: Element, path: str) -> None:
    """Read `<SOW>`: queues; topics and views have no counterpart."""
    for child, inner in source.parts(element, path, None):
        if child.name in QUEUE_TAGS:
            _read_queue(source, child, inner)
        else:
            source.skip_or_refuse(child, inner, SOW_OTHERS, QUEUE_TAGS)


# -- queues ------------------------------------------------------------------------------------------------------------


def _read_queue(source: AmpsSource, element: Element, path: str) -> None:
    """Read one queue: its elements are arguments."""
    arguments: dict[str, object] = {"x-queue-type": AMPS}
    origins: dict[str, Origin] = {}
    names: dict[str, Element] = {}
    name = ""
    for child, inner in source.children(element, path):
        text = source.text_of(child, inner)
        row = BY_TAG.get(child.name)
        if child.name == NAME or SYNONYMS.get(child.name) == NAME:
            if names and text != name:
                source.refuse(child, inner, "E-NAME", f"Name and Topic differ: {shown(name)}, {shown(text)}")
            if not names:
                name = text
            names[child.name] = child
        elif row is None:
            source.misplaced(child, inner, QUEUE_CHILDREN)
        elif text or child.name != "Filter":  # an empty filter is no filter
            arguments[row.argument] = text
            origins[row.argument] = source.origin_of(child)
    path_of = {row.argument: f"{path}/{row.tag}" if row.tag else path for row in ELEMENTS}
    path_of["name"] = path if not names else f"{path}/{next(iter(names))}"
    origins["name"] = source.origin_of(next(iter(names.values()), element))
    if TAGS[element.name] != LOCAL:
        arguments["x-replication"] = TAGS[element.name]
    else:
        source.builder.notes(AmpsNotes).local.add(("/", name))
    if "x-message-type" not in arguments:
        source.refuse(element, f"{path}/MessageType", "E-MTYPE")
    queue = QueueDeclaration(name, name, arguments=arguments, origin=source.origin_of(element), origins=origins)
    source.builder.add_queue(queue, path_of)


def _read_replication(source: AmpsSource, element: Element, path: str) -> None:
    """Skip replication, but note the topics that it lists: a LocalQueue must not be one of them."""
    source.no_effect(element, path)
    for destination in element.children:
        for topic in destination.children:
            for child in topic.children if topic.name == "Topic" else ():
                if child.name == "Name" and child.value:
                    where = f"{path}/{destination.name}/Topic/Name"
                    source.builder.notes(AmpsNotes).replicated.setdefault(child.value, (source.origin_of(child), where))


# -- the transaction log -----------------------------------------------------------------------------------------------


def _read_transaction_log(source: AmpsSource, element: Element, path: str) -> None:
    """Read the logged topics, and the size of a segment."""
    source.builder.logged_vhosts.add("/")
    for child, inner in source.parts(element, path, ("Topic",)):
        if child.name == "Topic":
            _read_logged_topic(source, child, inner)
        elif child.name not in LOG_SETTINGS:
            source.skip_or_refuse(child, inner, (), ("Topic", *LOG_SETTINGS))
        else:
            _read_log_setting(source, child, inner)


def _read_log_setting(source: AmpsSource, element: Element, path: str) -> None:
    """Read one of `LOG_SETTINGS`."""
    text = source.text_of(element, path)
    if not LOG_SETTINGS[element.name]:
        size = _octets(text)
        if size is None:
            source.invalid(element, path, text, "a size like 10MB")
        else:
            source.builder.broker_value(source.origin_of(element), "journal", "segment-size", size, path)
        return
    if element.name == "PreallocatedJournalFiles":
        try:
            integer(1)(text)
        except BadValue as error:
            source.refuse(element, path, error.code, str(error))
            return
    elif not text:
        source.fault(element, path, "is empty, expected a directory")
        return
    source.no_effect(element, path, LOG_SETTINGS[element.name])


def _read_logged_topic(source: AmpsSource, element: Element, path: str) -> None:
    """Read a topic by its name, or a regular expression for several."""
    given: dict[str, str] = {}
    for child, inner in source.children(element, path):
        if child.name in ("Name", "MessageType"):
            given[child.name] = source.text_of(child, inner)
        else:
            source.misplaced(child, inner, ("Name", "MessageType"))
    name, message_type = given.get("Name", ""), given.get("MessageType", "")
    if not 0 < len(name.encode("utf-8", "replace")) <= 255:
        source.refuse(element, f"{path}/Name", "E-NAME", shown(name) if name else "")
    elif message_type not in MESSAGE_TYPES:
        source.refuse(element, f"{path}/MessageType", "E-MTYPE", shown(message_type) if message_type else "")
    else:
        topic = LoggedTopic(name, is_regex(name), "/", message_type, origin=source.origin_of(element))
        source.builder.add_logged_topic(topic, f"{path}/Name")


def _octets(text: str) -> int | None:
    """A size in AMPS' notation, in powers of 1024 (queues page H.2)."""
    found = _SIZE.fullmatch(text)
    size = int(float(found[1]) * 1024 ** _POWERS[found[2].lower()]) if found else 0
    return size if 0 < size <= LONG_MAX else None


#: Element that a file may begin with -> its reader, which gets the element's path, too.
READERS: dict[str, Callable[[AmpsSource, Element, str], None]] = {
    "AMPSConfig": _read_whole,
    "SOW": _read_sow,
    "TransactionLog": _read_transaction_log,
    "Actions": read_actions,
    "Replication": _read_replication,
    **dict.fromkeys(QUEUE_TAGS, _read_queue),
}
