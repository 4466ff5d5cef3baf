"""One XML configuration file during loading: positions of elements, checks of them, variables, included files.

An included file replaces the element that names it; `${NAME:default}` is replaced from the environment.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..faults import Origin
from ..files.builder import ConfigurationBuilder
from ..values import Kind, shown
from .xml_tree import ELEMENTS_MAX, ELLIPSIS, TEXT_MAX, Element, XmlFault, parse_xml

#: Maximum inclusions of one configuration, and depth of files included by included files.
INCLUDED_MAX, INCLUDE_DEPTH_MAX = 100, 8
XINCLUDE = "http://www.w3.org/2001/XInclude"


class XmlSource:
    """A file, and the builder that collects faults and declarations."""

    variable = re.compile(r"\$\{\s*(?P<name>[^{}:]+?)\s*(?::(?P<default>[^{}]*))?\}")

    def __init__(self, builder: ConfigurationBuilder, file: str) -> None:
        self.builder = builder
        self.file = file
        self._including: dict[str, tuple[str, ...]] = {}  # included file -> the chain of files from the first to it

    def origin_of(self, element: Element) -> Origin:
        return Origin(element.file or self.file, element.line)

    # -- faults and warnings at an element: see the builder ------------------------------------------------------------

    def fault(self, element: Element, key: str, problem: str) -> None:
        self.builder.fault(self.origin_of(element), key, problem)

    def unknown(self, element: Element, key: str, where: str, known: Iterable[str]) -> None:
        self.builder.unknown(self.origin_of(element), key, where, known)

    def invalid(self, element: Element, key: str, value: object, error: object) -> None:
        self.builder.invalid(self.origin_of(element), key, value, error)

    def warn(self, element: Element, key: str, problem: str) -> None:
        self.builder.warn(self.origin_of(element), key, problem)

    def no_effect(self, element: Element, key: str, reason: str = "") -> None:
        self.builder.no_effect(self.origin_of(element), key, reason)

    # -- elements ------------------------------------------------------------------------------------------------------

    def each_once(self, element: Element, repeatable: Iterable[str] = ()) -> list[Element]:
        """The children. A repeated child of a name that is allowed once is a fault, and skipped."""
        seen: set[str] = set()
        children: list[Element] = []
        for child in self.children_of(element):
            if child.name in seen and child.name not in repeatable:
                self.fault(child, child.name, f"is given twice in <{element.name}>")
                continue
            seen.add(child.name)
            children.append(child)
        return children

    def refuse_text(self, element: Element) -> None:
        """Add a fault if there is text between elements."""
        if text := element.value:
            is_left_out = "..." in text or "\N{HORIZONTAL ELLIPSIS}" in text
            self.fault(element, element.name, ELLIPSIS if is_left_out else f"text means nothing in <{element.name}>")

    def attributes(self, element: Element, known: tuple[str, ...], ignore: tuple[str, ...] = ()) -> None:
        """Check for unknown attributes."""
        for key in element.attributes:
            if key not in known and key not in ignore:
                self.unknown(element, key, f"<{element.name}>", known)

    def value(self, key: str, text: str, kind: Kind, origin: Origin, default: Any) -> Any:
        """A value of some kind; the default, with a fault, if it is invalid."""
        try:
            return kind.read_text(text)
        except ValueError as error:
            self.builder.invalid(origin, key, text, error)
            return default

    # -- variables ----------------------------------------------------------------------------------------------------

    def expand(self, element: Element) -> None:
        """Replace variables in an element and all elements in it."""
        if "${" in element.text:
            element.text = self.expanded(element, element.name, element.text)
        for name, text in element.attributes.items():
            if "${" in text:
                element.attributes[name] = self.expanded(element, name, text)
        for child in self.children_of(element):
            self.expand(child)

    def expanded(self, element: Element, key: str, given: str) -> str:
        """The text with variables of the environment replaced; their values are text, never markup."""
        environment, length = self.builder.environment, len(given)

        def value(found: re.Match[str]) -> str:
            nonlocal length
            content = environment.get(found["name"], found.groupdict().get("default"))
            if content is None:
                self.fault(element, key, f"the environment has no variable {found['name'][:80]}")
                return found[0]
            length += len(content)
            return content if length <= TEXT_MAX else ""

        text = self.variable.sub(value, given)
        if length > TEXT_MAX:
            self.fault(element, key, f"has more than {TEXT_MAX} characters after variables are replaced")
        return text

    # -- other files --------------------------------------------------------------------------------------------------

    def children_of(self, element: Element) -> list[Element]:
        """The elements inside; an <xi:include> is replaced by the root of the file that it names."""
        if any(child.namespace == XINCLUDE for child in element.children):
            including = self._including.get(element.file, (self.file,))
            element.children = list(self._with_included_files(element.children, including))
        return element.children

    def _with_included_files(self, given: Iterable[Element], including: tuple[str, ...]) -> Iterator[Element]:
        """The elements, with the root of an included file in place of each <xi:include>.

        `including`: the chain of files that leads here (`_including`).
        """
        for child in given:
            if child.namespace == XINCLUDE:
                yield from self._include(child, including)
            else:
                yield child

    def _include(self, element: Element, including: tuple[str, ...]) -> Iterator[Element]:
        key, href = "xi:include", self.expanded(element, "href", element.attributes.get("href", "")).strip()
        directory = posixpath.dirname(self.origin_of(element).file)
        path = posixpath.normpath(posixpath.join(directory, href))
        problem = ""
        if element.name != "include":
            problem = f"<{element.name}> means nothing here, expected <xi:include>"
        elif not href:
            problem = "names no file, expected href"
        elif element.attributes.get("parse", "xml") != "xml" or "xpointer" in element.attributes:
            problem = "only whole XML files can be included: neither parse nor xpointer"
        elif ":" in href or "\\" in href or not _is_within(posixpath.dirname(self.file), path):
            problem = f"{shown(href)} is not in the directory of {self.file}; include a file of that directory"
        elif path in including:
            problem = f"{shown(href)} includes itself"
        if problem:
            self.fault(element, key, problem)
            return
        fallback = next((child for child in element.children if child.name == "fallback"), None)
        root = self.included(element, key, posixpath.normpath(href), len(including) - 1, fallback)
        if root is not None:
            self._including[path] = (*including, path)
            yield from self._with_included_files((root,), self._including[path])
        elif fallback is not None:
            yield from self._with_included_files(fallback.children, including)

    def included(
        self, element: Element, key: str, named: str, depth: int, fallback: Element | None = None
    ) -> Element | None:
        """The root of an included file; None, with a fault, if there is none.

        With a `fallback`, a file that cannot be read is a warning.
        """
        found = self._fetch(element, key, named, depth, fallback)
        if found is None:
            return None
        builder, (name, content) = self.builder, found
        builder.included.append(name)
        try:
            root, count = parse_xml(content.removeprefix("\ufeff"), ELEMENTS_MAX - builder.included_elements)
        except XmlFault as error:
            builder.fault(Origin(name, error.line), "XML", error.problem)
            return None
        builder.included_elements += count
        _note_file(root, name)
        return root

    def _fetch(
        self, element: Element, key: str, named: str, depth: int, fallback: Element | None
    ) -> tuple[str, str] | None:
        """The name and the text of an included file; None, with a fault or a warning, if there is none."""
        builder = self.builder
        if depth >= INCLUDE_DEPTH_MAX:
            problem = f"included files are nested more than {INCLUDE_DEPTH_MAX} deep"
        elif len(builder.included) >= INCLUDED_MAX:
            problem = f"more than {INCLUDED_MAX} inclusions"
        elif not named:
            problem = "is empty, expected the path of a file"
        elif builder.fetch is None:
            problem = "other files cannot be included here"
        else:
            try:
                return builder.fetch(self.origin_of(element).file, named)
            except ValueError as error:
                report = self.fault if fallback is None else self.warn
                report(element, key, f"{shown(named)} {error}")
                return None
        self.fault(element, key, problem)
        return None


def _is_within(directory: str, path: str) -> bool:
    inside = posixpath.normpath(directory)
    if inside == ".":
        return path != ".." and not path.startswith(("../", "/"))
    return path.startswith(f"{inside}/")


def _note_file(element: Element, name: str) -> None:
    """Set the file of an element and all elements in it."""
    element.file = name
    for child in element.children:
        _note_file(child, name)
