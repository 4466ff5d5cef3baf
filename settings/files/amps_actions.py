"""`Actions` of AMPS: a message that is published when one of a queue expires is a dead letter. Source: queues page H.1.

All other actions are skipped.
"""

import re
from dataclasses import dataclass

from ...expressions.patterns.pattern_syntax import PatternFault
from ..faults import nearest
from ..leased.elements import MESSAGE_TYPES
from ..leased.readers import REASONS, TEMPLATE_VARIABLES
from ..leased.topics import selects
from ..values import shown
from .amps_names import EXPIRED_MODULE, PUBLISH_MODULE
from .amps_source import AmpsSource
from .leased_queues import ExpiryAction
from .xml_tree import Element

_VARIABLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@dataclass(slots=True)
class _Step:
    """An `On` or a `Do`: its module, and the element with its options."""

    module: str
    options: Element
    path: str


@dataclass(slots=True)
class _Option:
    text: str
    element: Element
    path: str


class Actions(AmpsSource):
    """Reads them into the draft."""

    def actions(self, element: Element, path: str) -> None:
        """`<Actions>`."""
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
            self.draft.fault(self.at(element), path, "expected On and Do")
        for on in steps["On"]:
            for do in steps["Do"]:
                if on.module == EXPIRED_MODULE and do.module == PUBLISH_MODULE:
                    self._dead_letter(on, do)
                else:
                    other = on if on.module != EXPIRED_MODULE else do
                    self.draft.no_effect(self.at(element), f"{other.path} {other.module}")

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
            self.draft.fault(self.at(element), f"{path}/Module", "is missing")
        return step

    def _options(self, step: _Step, required: tuple[str, ...], others: tuple[str, ...]) -> dict[str, _Option]:
        """Those that are there. A required one that is missing is a fault."""
        found: dict[str, _Option] = {}
        if step.options.name == "Options":
            for child, inner in self.children(step.options, step.path):
                if child.name in required or child.name in others:
                    found[child.name] = _Option(self.text_of(child, inner), child, inner)
                else:
                    self.unknown(child, inner, (*required, *others))
        for name in required:
            if name not in found or not found[name].text:
                self.draft.fault(self.at(step.options), f"{step.path}/{name}", "is missing")
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
                    self.draft.fault(self.at(option.element), option.path, problem)
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
        self.draft.expiry_actions.append(action)

    def _reasons(self, option: _Option | None) -> tuple[str, ...]:
        """Those for which messages are published; all when nothing is said."""
        if option is None:
            return REASONS
        given = {word.strip() for word in option.text.split(",")}
        for word in sorted(given - {*REASONS}):
            problem = f"{shown(word)}, expected some of {', '.join(REASONS)}{nearest(word, REASONS)}"
            self.refuse(option.element, option.path, "E-ENUM", problem)
        return tuple(reason for reason in REASONS if reason in given)
