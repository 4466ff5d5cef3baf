"""One file of AMPS during loading: its elements with their paths, which faults name.

Values are texts of elements, with `${VARIABLES}` of the environment; attributes have no meaning. Source: queues page
H.1.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

from ..faults import nearest
from ..foreign.xml_source import XmlSource
from ..foreign.xml_tree import ELLIPSIS, Element
from .leased_settings import LeasedFault

#: Similarity from which an unknown name counts as misspelt.
_LIKENESS = 0.8


class AmpsSource(XmlSource):
    """A file, and the builder that collects faults and declarations."""

    variable = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")

    def refuse(self, element: Element, path: str, code: str, detail: str = "", hint: str = "") -> None:
        """Add a fault of `leased_settings.CONDITIONS`."""
        self.fault(element, path, str(LeasedFault(code, "", detail)) + hint)

    def misplaced(self, element: Element, path: str, known: Iterable[str]) -> None:
        """Add a fault: an element in the wrong place."""
        self.refuse(element, path, "E-UNKNOWN", hint=nearest(element.name, known))

    def skip_or_refuse(self, element: Element, path: str, others: Iterable[str], known: Iterable[str]) -> None:
        """Skip an element of `others`, or an unknown one; refuse an unknown one that is similar to a known one."""
        spelled = [name.casefold() for name in known]
        similar = get_close_matches(element.name[:100].casefold(), spelled, n=1, cutoff=_LIKENESS)
        if element.name not in others and similar:
            self.misplaced(element, path, known)
        else:
            self.no_effect(element, path)

    def children(
        self, element: Element, path: str, repeatable: Collection[str] | None = ()
    ) -> Iterator[tuple[Element, str]]:
        """The elements inside, with their paths; anything else is a fault.

        `repeatable`: names of elements that may occur several times; None: all may.
        """
        self.without_attributes(element, path)
        if text := element.value:
            dots = "..." in text or "\N{HORIZONTAL ELLIPSIS}" in text
            self.fault(element, path, ELLIPSIS if dots else "text means nothing between elements")
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
        """Like `children`, with included files in place of `<Include>`: the root of a file, or its children if the root
        has this element's name.
        """
        element.children = list(self._with_included(element, path, element.children, 0))
        return self.children(element, path, repeatable)

    def _with_included(self, around: Element, path: str, given: Iterable[Element], depth: int) -> Iterator[Element]:
        for child in given:
            if child.name != "Include":
                yield child
                continue
            inner = f"{path}/Include"
            root = self.included(child, inner, self.text_of(child, inner), depth)
            if root is not None:
                found = root.children if root.name == around.name else [root]
                yield from self._with_included(around, path, found, depth + 1)

    def text_of(self, element: Element, path: str) -> str:
        """The text of an element, without surrounding blanks; "" with a fault if it cannot be read."""
        self.without_attributes(element, path)
        for child in element.children:
            self.fault(child, f"{path}/{child.name}", f"expected text in <{element.name}>, no elements")
        return self.expanded(element, path, element.text).strip()

    def without_attributes(self, element: Element, path: str) -> None:
        """Add a fault for each attribute."""
        for name in element.attributes:
            self.fault(element, f"{path}/@{name}", "attributes mean nothing here, expected elements")
