"""The actions of an AMPS file: those that publish expired messages give queues their dead-letter destinations.

Other actions are skipped with a warning. Source: queues page A.3, H.1.
"""

import re
from dataclasses import dataclass

from ...expressions.patterns.pattern_syntax import PatternFault
from ..faults import nearest
from ..foreign.xml_tree import Element
from ..values import MESSAGE_TYPES, shown
from .amps_source import AmpsSource
from .checks import AmpsNotes, ExpiryAction
from .element_values import REASONS, TEMPLATE_VARIABLES
from .leased_settings import selects

EXPIRED_MODULE = "amps-action-on-sow-expire-message"
PUBLISH_MODULE = "amps-action-do-publish-message"
_VARIABLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


@dataclass(slots=True)
class _Step:
    """An `On` or a `Do`. `options`: its child `Options`, or without one the step's element; `path`: of `options`."""

    module: str
    options: Element
    path: str


@dataclass(slots=True)
class _Option:
    text: str
    element: Element
    path: str


def read_actions(source: AmpsSource, element: Element, path: str) -> None:
    """Read `<Actions>`."""
    for child, inner in source.parts(element, path, ("Action",)):
        if child.name == "Action":
            _action(source, child, inner)
        else:
            source.misplaced(child, inner, ("Action",))


def _action(source: AmpsSource, element: Element, path: str) -> None:
    steps: dict[str, list[_Step]] = {"On": [], "Do": []}
    for child, inner in source.children(element, path, ("On", "Do", "If")):
        if child.name in steps:
            steps[child.name].append(_step(source, child, inner))
        else:
            source.skip_or_refuse(child, inner, ("If",), ("On", "Do"))
    if not steps["On"] or not steps["Do"]:
        source.fault(element, path, "expected On and Do")
    for on in steps["On"]:
        for do in steps["Do"]:
            if on.module == EXPIRED_MODULE and do.module == PUBLISH_MODULE:
                _dead_letter(source, on, do)
            else:
                other = on if on.module != EXPIRED_MODULE else do
                source.no_effect(element, f"{other.path} {other.module}")


def _step(source: AmpsSource, element: Element, path: str) -> _Step:
    step = _Step("", element, path)
    for child, inner in source.children(element, path):
        if child.name == "Module":
            step.module = source.text_of(child, inner)
        elif child.name == "Options":
            step.options, step.path = child, inner
        else:
            source.misplaced(child, inner, ("Module", "Options"))
    if not step.module:
        source.fault(element, f"{path}/Module", "is missing")
    return step


def _options(source: AmpsSource, step: _Step, required: tuple[str, ...], others: tuple[str, ...]) -> dict[str, _Option]:
    """The options that are set. A required one that is missing or empty is a fault, and is left out."""
    found: dict[str, _Option] = {}
    if step.options.name == "Options":
        for child, inner in source.children(step.options, step.path):
            if child.name in required or child.name in others:
                found[child.name] = _Option(source.text_of(child, inner), child, inner)
            else:
                source.misplaced(child, inner, (*required, *others))
    for name in required:
        if name not in found or not found[name].text:
            source.fault(step.options, f"{step.path}/{name}", "is missing")
            found.pop(name, None)
    message_type = found.get("MessageType")
    if message_type is not None and message_type.text not in MESSAGE_TYPES:
        source.refuse(message_type.element, message_type.path, "E-MTYPE", shown(message_type.text))
    return found


def _dead_letter(source: AmpsSource, on: _Step, do: _Step) -> None:
    when = _options(source, on, ("Topic",), ("MessageType", "Reason"))
    what = _options(source, do, ("Topic", "Data"), ("MessageType",))
    if "Topic" not in when or not {"Topic", "Data"} <= what.keys():
        return
    for option, known in ((what["Topic"], ("AMPS_TOPIC",)), (what["Data"], TEMPLATE_VARIABLES)):
        for found in _VARIABLE.finditer(option.text):
            if found[1] not in known:
                problem = f"{shown(found[0])} is unknown here{nearest(found[1], known)}"
                source.fault(option.element, option.path, problem)
    try:
        selects(when["Topic"].text)
    except PatternFault as error:
        source.refuse(when["Topic"].element, when["Topic"].path, "E-REGEX", str(error))
        return
    action = ExpiryAction(
        when["Topic"].text,
        what["Topic"].text,
        _reasons(source, when.get("Reason")),
        what["Data"].text,
        source.origin_of(when["Topic"].element),
        when["Topic"].path,
    )
    source.builder.notes(AmpsNotes).actions.append(action)


def _reasons(source: AmpsSource, option: _Option | None) -> tuple[str, ...]:
    """The reasons for which messages are published; all if none are listed."""
    if option is None:
        return REASONS
    given = {word.strip() for word in option.text.split(",")}
    for word in sorted(given - {*REASONS}):
        problem = f"{shown(word)}, expected some of {', '.join(REASONS)}{nearest(word, REASONS)}"
        source.refuse(option.element, option.path, "E-ENUM", problem)
    return tuple(reason for reason in REASONS if reason in given)
