"""XML configurations of AMPS, whole or in fragments: queues, logged topics, actions on messages that expire.

The rest is skipped. Values are texts of elements, with `${VARIABLES}` of the environment; attributes have no meaning.
Faults name the element's path. Source: queues page A.3, H.1; seed 001; ruling 18.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from ...expressions.patterns.pattern_syntax import PatternFault
from ..declared.declarations import ANYCAST, LoggedTopic, QueueDeclaration
from ..faults import Origin, nearest
from ..files.builder import ConfigurationBuilder
from ..foreign.xml_source import XmlSource
from ..foreign.xml_tree import ELLIPSIS, Element
from ..rows.message_types import MESSAGE_TYPES
from ..values import LONG_MAX, shown
from .checks import Collected, ExpiryAction
from .leased_settings import (
    AMPS,
    BY_TAG,
    ELEMENTS,
    LOCAL,
    NAME,
    REASONS,
    SYNONYMS,
    TAGS,
    TEMPLATE_VARIABLES,
    BadValue,
    LeasedFault,
    integer,
    is_regex,
    selects,
)

#: Sections of the whole file that are read.
SECTIONS = ("AMPSConfig", "SOW", "TransactionLog", "Actions")
#: Elements that identify the instance.
IDENTITY = ("Name", "Group")
#: Sections of `AMPSConfig` that are skipped. So are unknown ones, unless one may be a misspelled name that is read.
OTHER_SECTIONS = frozenset(
    ("Admin", "Authentication", "Entitlement", "Extensions", "Logging", "MessageTypes", "Modules", "Protocols")
    + ("Replication", "Transports", "Tuning")
)
#: Children of `SOW` beside queues that could be taken for a misspelled queue.
SOW_OTHERS = frozenset(("Topic", "TopicDefinition", "View", "ViewDefinition", "ConflatedTopic"))

#: Children of `TransactionLog` beside `Topic`: the reason why there is no counterpart; empty: it is read.
LOG_SETTINGS = {
    "JournalDirectory": "[broker] data says where the journal is",
    "JournalArchiveDirectory": "segments that nobody needs are deleted, or kept as [journal] retain says",
    "PreallocatedJournalFiles": "[journal] reserve keeps space for what must not fail on a full disk",
    "JournalSize": "",
}

QUEUE_TAGS = tuple(TAGS)
#: All possible children of a queue.
QUEUE_CHILDREN = (NAME, *SYNONYMS, *BY_TAG)

#: Elements that an AMPS file, or a part of one, may begin with. Children of a queue alone are refused.
AMPS_ROOTS = frozenset((*SECTIONS, *QUEUE_TAGS, *OTHER_SECTIONS, *SOW_OTHERS, *QUEUE_CHILDREN))

EXPIRED_MODULE = "amps-action-on-sow-expire-message"
PUBLISH_MODULE = "amps-action-do-publish-message"


#: Similarity from which an unknown name counts as misspelt.
_LIKENESS = 0.8

#: Reads an element at a path.
Read = Callable[[Element, str], None]


class AmpsSource(XmlSource):
    """A file, and the builder that collects faults and declarations."""

    variable = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")

    def refuse(self, element: Element, path: str, code: str, detail: str = "", hint: str = "") -> None:
        """Add a fault of `leased_settings.CONDITIONS`."""
        self.builder.fault(self.at(element), path, str(LeasedFault(code, "", detail)) + hint)

    def unknown(self, element: Element, path: str, known: Iterable[str]) -> None:
        """Add a fault: an element in the wrong place."""
        self.refuse(element, path, "E-UNKNOWN", hint=nearest(element.name, known))

    def skip_or_refuse(self, element: Element, path: str, others: Iterable[str], known: Iterable[str]) -> None:
        """Skip an element of `others`, or an unknown one that is not similar to a known one."""
        spelled = [name.casefold() for name in known]
        is_like = get_close_matches(element.name[:100].casefold(), spelled, n=1, cutoff=_LIKENESS)
        if element.name not in others and is_like:
            self.unknown(element, path, known)
        else:
            self.builder.no_effect(self.at(element), path)

    def children(
        self, element: Element, path: str, repeatable: Collection[str] | None = ()
    ) -> Iterator[tuple[Element, str]]:
        """The elements inside, with their paths: a container has nothing else. `repeatable` None: all are."""
        self.without_attributes(element, path)
        if text := element.value:
            dots = "..." in text or "\N{HORIZONTAL ELLIPSIS}" in text
            self.builder.fault(self.at(element), path, ELLIPSIS if dots else "text means nothing between elements")
        seen: set[str] = set()
        for child in element.children:
            inner = f"{path}/{child.name}"
            if child.name in seen and repeatable is not None and child.name not in repeatable:
                self.refuse(child, inner, "E-DUP-ELEM")
                continue
            seen.add(child.name)
            yield child, inner

    def parts(
        self, element: Element, path: str, repeatable: Collection[str] | None = ()
    ) -> Iterator[tuple[Element, str]]:
        """Like `children`, with `<Include>` replaced by the included file; its root is left out if it has this
        element's name.
        """
        element.children = list(self._with_included(element, path, element.children, 0))
        return self.children(element, path, repeatable)

    def _with_included(self, around: Element, path: str, given: Iterable[Element], depth: int) -> Iterator[Element]:
        for child in given:
            if child.name != "Include":
                yield child
                continue
            root = self._included(child, f"{path}/Include", depth)
            if root is not None:
                yield from self._with_included(
                    around, path, root.children if root.name == around.name else [root], depth + 1
                )

    def _included(self, element: Element, path: str, depth: int) -> Element | None:
        """The root of an included file; None, with a fault, if there is none."""
        return self.included(element, path, self.text_of(element, path), depth)

    def text_of(self, element: Element, path: str) -> str:
        """The text of an element, without surrounding blanks; "" with a fault if it cannot be read."""
        self.without_attributes(element, path)
        for child in element.children:
            self.builder.fault(
                self.at(child), f"{path}/{child.name}", f"expected text in <{element.name}>, no elements"
            )
        return self.expanded(element, path, element.text).strip()

    def without_attributes(self, element: Element, path: str) -> None:
        """Check that there are no attributes."""
        for name in element.attributes:
            self.builder.fault(self.at(element), f"{path}/@{name}", "attributes mean nothing here, expected elements")


_VARIABLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@dataclass(slots=True)
class _Step:
    """An `On` or a `Do`. `options`: its element `Options`, or itself if it has none; `path`: of that."""

    module: str
    options: Element
    path: str


@dataclass(slots=True)
class _Option:
    text: str
    element: Element
    path: str


class Actions(AmpsSource):
    """Reads actions into the builder."""

    def actions(self, element: Element, path: str) -> None:
        """Read `<Actions>`."""
        for child, inner in self.parts(element, path, ("Action",)):
            if child.name == "Action":
                self._action(child, inner)
            else:
                self.unknown(child, inner, ("Action",))

    def _action(self, element: Element, path: str) -> None:
        steps: dict[str, list[_Step]] = {"On": [], "Do": []}
        for child, inner in self.children(element, path, ("On", "Do", "If")):
            if child.name in steps:
                steps[child.name].append(self._step(child, inner))
            else:
                self.skip_or_refuse(child, inner, ("If",), ("On", "Do"))
        if not steps["On"] or not steps["Do"]:
            self.builder.fault(self.at(element), path, "expected On and Do")
        for on in steps["On"]:
            for do in steps["Do"]:
                if on.module == EXPIRED_MODULE and do.module == PUBLISH_MODULE:
                    self._dead_letter(on, do)
                else:
                    other = on if on.module != EXPIRED_MODULE else do
                    self.builder.no_effect(self.at(element), f"{other.path} {other.module}")

    def _step(self, element: Element, path: str) -> _Step:
        step = _Step("", element, path)
        for child, inner in self.children(element, path):
            if child.name == "Module":
                step.module = self.text_of(child, inner)
            elif child.name == "Options":
                step.options, step.path = child, inner
            else:
                self.unknown(child, inner, ("Module", "Options"))
        if not step.module:
            self.builder.fault(self.at(element), f"{path}/Module", "is missing")
        return step

    def _options(self, step: _Step, required: tuple[str, ...], others: tuple[str, ...]) -> dict[str, _Option]:
        """The options that are set. A missing required one is a fault."""
        found: dict[str, _Option] = {}
        if step.options.name == "Options":
            for child, inner in self.children(step.options, step.path):
                if child.name in required or child.name in others:
                    found[child.name] = _Option(self.text_of(child, inner), child, inner)
                else:
                    self.unknown(child, inner, (*required, *others))
        for name in required:
            if name not in found or not found[name].text:
                self.builder.fault(self.at(step.options), f"{step.path}/{name}", "is missing")
                found.pop(name, None)
        message_type = found.get("MessageType")
        if message_type is not None and message_type.text not in MESSAGE_TYPES:
            self.refuse(message_type.element, message_type.path, "E-MTYPE", shown(message_type.text))
        return found

    def _dead_letter(self, on: _Step, do: _Step) -> None:
        when = self._options(on, ("Topic",), ("MessageType", "Reason"))
        what = self._options(do, ("Topic", "Data"), ("MessageType",))
        if "Topic" not in when or not {"Topic", "Data"} <= what.keys():
            return
        for option, known in ((what["Topic"], ("AMPS_TOPIC",)), (what["Data"], TEMPLATE_VARIABLES)):
            for found in _VARIABLE.finditer(option.text):
                if found[1] not in known:
                    problem = f"{shown(found[0])} is unknown here{nearest(found[1], known)}"
                    self.builder.fault(self.at(option.element), option.path, problem)
        try:
            selects(when["Topic"].text)
        except PatternFault as error:
            self.refuse(when["Topic"].element, when["Topic"].path, "E-REGEX", str(error))
            return
        action = ExpiryAction(
            when["Topic"].text,
            what["Topic"].text,
            self._reasons(when.get("Reason")),
            what["Data"].text,
            self.at(when["Topic"].element),
            when["Topic"].path,
        )
        self.builder.collected(Collected).actions.append(action)

    def _reasons(self, option: _Option | None) -> tuple[str, ...]:
        """The reasons for which messages are published; all if none are listed."""
        if option is None:
            return REASONS
        given = {word.strip() for word in option.text.split(",")}
        for word in sorted(given - {*REASONS}):
            problem = f"{shown(word)}, expected some of {', '.join(REASONS)}{nearest(word, REASONS)}"
            self.refuse(option.element, option.path, "E-ENUM", problem)
        return tuple(reason for reason in REASONS if reason in given)


_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kmgt]?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_ROOTS = (*SECTIONS, *QUEUE_TAGS)


def load_amps(builder: ConfigurationBuilder, file: str, root: Element) -> None:
    """Read one file, whose root is one of `AMPS_ROOTS`, into the builder."""
    _Loader(builder, file).section(root, root.name)


class _Loader(Actions):
    def section(self, element: Element, path: str) -> None:
        """Read one of the possible root elements."""
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
            self.builder.fault(self.at(element), path, "means nothing without the <Queue> around it")
        else:
            self.skip_or_refuse(element, path, AMPS_ROOTS, _ROOTS)

    def whole(self, element: Element, path: str) -> None:
        """Read `<AMPSConfig>`."""
        for child, inner in self.parts(element, path, ("SOW", "Actions", *OTHER_SECTIONS)):
            if child.name in IDENTITY:
                if not self.text_of(child, inner):
                    self.builder.fault(
                        self.at(child), inner, "is empty, expected the name of the instance or its group"
                    )
                self.builder.no_effect(self.at(child), inner)
            elif child.name in SECTIONS[1:] or child.name == "Replication":
                self.section(child, inner)
            elif child.name in QUEUE_TAGS:
                self.builder.fault(self.at(child), inner, "means nothing outside <SOW>")
            else:
                self.skip_or_refuse(child, inner, OTHER_SECTIONS, (*SECTIONS, *IDENTITY))

    def sow(self, element: Element, path: str) -> None:
        """Read `<SOW>`: queues; topics and views have no counterpart."""
        for child, inner in self.parts(element, path, None):
            if child.name in QUEUE_TAGS:
                self.queue(child, inner)
            else:
                self.skip_or_refuse(child, inner, SOW_OTHERS, QUEUE_TAGS)

    # -- queues -------------------------------------------------------------------------------------------------------

    def queue(self, element: Element, path: str) -> None:
        """Read one queue: its elements are arguments."""
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
            elif text or child.name != "Filter":  # an empty filter is no filter
                arguments[row.argument] = text
                origins[row.argument] = self.at(child)
        path_of = {row.argument: f"{path}/{row.tag}" if row.tag else path for row in ELEMENTS}
        path_of["name"] = path if not names else f"{path}/{next(iter(names))}"
        origins["name"] = self.at(next(iter(names.values()), element))
        if TAGS[element.name] != LOCAL:
            arguments["x-replication"] = TAGS[element.name]
        else:
            self.builder.collected(Collected).local.add(("/", name))
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
        self.builder.add_queue(queue, path_of)

    def replication(self, element: Element, path: str) -> None:
        """Skip replication, but note the topics that it lists: a LocalQueue must not be one of them."""
        self.builder.no_effect(self.at(element), path)
        for destination in element.children:
            for topic in destination.children:
                for child in topic.children if topic.name == "Topic" else ():
                    if child.name == "Name" and child.value:
                        where = f"{path}/{destination.name}/Topic/Name"
                        self.builder.collected(Collected).replicated.setdefault(child.value, (self.at(child), where))

    # -- the transaction log ------------------------------------------------------------------------------------------

    def transaction_log(self, element: Element, path: str) -> None:
        """Read the logged topics, and the size of a segment."""
        self.builder.logs.add("/")
        for child, inner in self.parts(element, path, ("Topic",)):
            if child.name == "Topic":
                self.logged_topic(child, inner)
            elif child.name not in LOG_SETTINGS:
                self.skip_or_refuse(child, inner, (), ("Topic", *LOG_SETTINGS))
            else:
                self.log_setting(child, inner)

    def log_setting(self, element: Element, path: str) -> None:
        """Read one of `LOG_SETTINGS`."""
        text = self.text_of(element, path)
        if element.name == "JournalSize":
            size = _octets(text)
            if size is None:
                self.builder.wrong(self.at(element), path, text, "a size like 10MB")
            else:
                self.builder.broker_value(self.at(element), "journal", "segment-size", size, path)
            return
        if element.name == "PreallocatedJournalFiles":
            try:
                integer(1)(text)
            except BadValue as error:
                self.refuse(element, path, error.code, str(error))
                return
        elif not text:
            self.builder.fault(self.at(element), path, "is empty, expected a directory")
            return
        self.builder.no_effect(self.at(element), path, LOG_SETTINGS[element.name])

    def logged_topic(self, element: Element, path: str) -> None:
        """Read a topic by its name, or a regular expression for several."""
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
            self.builder.add_logged_topic(topic, f"{path}/Name")


def _octets(text: str) -> int | None:
    """A size in AMPS' notation, in powers of 1024 (queues page H.2)."""
    found = _SIZE.fullmatch(text)
    size = int(float(found[1]) * 1024 ** _POWERS[found[2].lower()]) if found else 0
    return size if 0 < size <= LONG_MAX else None
