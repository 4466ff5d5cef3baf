"""One AMPS file while it is read: elements with their paths, texts with `${VARIABLES}` of the environment.

Values are texts of elements; attributes mean nothing. Faults name the element's path. Source: queues page H.1.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches

from ..faults import Origin, nearest
from ..leased.faults import LeasedFault
from ..values import shown
from .xml_source import XmlSource
from .xml_tree import ELLIPSIS, TEXT_MAX, Element, XmlFault, parse_xml

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
#: From this likeness on, a name that nobody knows is a misspelled one.
_LIKENESS = 0.8

INCLUDED_MAX, INCLUDE_DEPTH_MAX = 100, 8

#: Reads an element at a path.
Read = Callable[[Element, str], None]


class AmpsSource(XmlSource):
    """A file, and the draft that collects faults and declarations."""

    def refuse(self, element: Element, path: str, code: str, detail: str = "", hint: str = "") -> None:
        """A fault of `leased.faults.CONDITIONS`."""
        self.draft.fault(self.at(element), path, str(LeasedFault(code, "", detail)) + hint)

    def unknown(self, element: Element, path: str, known: Iterable[str]) -> None:
        """An element that may not stand here."""
        self.refuse(element, path, "E-UNKNOWN", hint=nearest(element.name, known))

    def skip_or_refuse(self, element: Element, path: str, others: Iterable[str], known: Iterable[str]) -> None:
        """An element of `others`, or one that nobody knows, is skipped, unless it looks like one that is known."""
        spelled = [name.casefold() for name in known]
        is_like = get_close_matches(element.name[:100].casefold(), spelled, n=1, cutoff=_LIKENESS)
        if element.name not in others and is_like:
            self.unknown(element, path, known)
        else:
            self.draft.no_effect(self.at(element), path)

    def children(
        self, element: Element, path: str, repeatable: Collection[str] | None = ()
    ) -> Iterator[tuple[Element, str]]:
        """The elements inside, with their paths: a container has nothing else. `repeatable` None: all are."""
        self.without_attributes(element, path)
        if text := element.value:
            dots = "..." in text or "\N{HORIZONTAL ELLIPSIS}" in text
            self.draft.fault(self.at(element), path, ELLIPSIS if dots else "text means nothing between elements")
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
        """As `children`; what `<Include>` names stands in its place, without its root if that is the same element."""
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
        """The root of an included file; None, with a fault, when there is none."""
        draft, origin, named = self.draft, self.at(element), self.text_of(element, path)
        problem = ""
        if depth >= INCLUDE_DEPTH_MAX:
            problem = f"files that include each other, {INCLUDE_DEPTH_MAX} deep"
        elif len(draft.included) >= INCLUDED_MAX:
            problem = f"more than {INCLUDED_MAX} inclusions"
        elif not named:
            problem = "is empty, expected the path of a file"
        elif draft.fetch is None:
            problem = "there are no other files here"
        if problem or draft.fetch is None:
            draft.fault(origin, path, problem)
            return None
        try:
            name, content = draft.fetch(origin.file, named)
        except ValueError as error:
            draft.fault(origin, path, f"{shown(named)} {error}")
            return None
        draft.included.append(name)
        try:
            root = parse_xml(content)
        except XmlFault as error:
            draft.fault(Origin(name, error.line), "XML", error.problem)
            return None
        _note_file(root, name)
        return root

    def text_of(self, element: Element, path: str) -> str:
        """A value, without the blanks around it; "" with a fault when there is none that could be read."""
        self.without_attributes(element, path)
        for child in element.children:
            self.draft.fault(self.at(child), f"{path}/{child.name}", f"expected text in <{element.name}>, no elements")
        return self._expanded(element, path).strip()

    def without_attributes(self, element: Element, path: str) -> None:
        """Attributes are faults."""
        for name in element.attributes:
            self.draft.fault(self.at(element), f"{path}/@{name}", "attributes mean nothing here, expected elements")

    def _expanded(self, element: Element, path: str) -> str:
        """With variables of the environment in their places; what they contain is text, never markup."""
        environment, length = self.draft.environment, len(element.text)

        def value(found: re.Match[str]) -> str:
            nonlocal length
            if found[1] not in environment:
                self.draft.fault(self.at(element), path, f"the environment has no variable {found[1][:80]}")
                return found[0]
            length += len(environment[found[1]])
            return environment[found[1]] if length <= TEXT_MAX else ""

        text = _VARIABLE.sub(value, element.text)
        if length > TEXT_MAX:
            self.draft.fault(self.at(element), path, f"more than {TEXT_MAX} characters with variables in their places")
        return text


def _note_file(element: Element, name: str) -> None:
    """All elements in it are of that file."""
    element.file = name
    for child in element.children:
        _note_file(child, name)
