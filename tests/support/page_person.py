"""Somebody at the console's page, in a real Chromium. Source: management page 19."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest

#: Names of the programs, as distributions call them.
PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable")
#: A busy machine is slow; nothing waits so long that goes well.
TIMEOUT_MS = 180_000
#: What a name can be that wants to be a program.
HOSTILE = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>{{7*7}}\u202eabc%2F/ \'"'


@contextmanager
def chromium() -> Iterator[Any]:
    """The distribution's browser; skips where it, or what drives it, is absent."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium here (Debian: apt install chromium)")
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (make browser)")
    is_root = os.geteuid() == 0
    with driver.sync_playwright() as playwright:
        arguments = ["--disable-gpu", *(["--no-sandbox"] if is_root else [])]
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()


class Person:
    """One tab. Whatever the browser complains of is kept in `complaints`; `allowed`: words of those that are meant."""

    def __init__(self, context: Any, url: str) -> None:
        context.set_default_timeout(TIMEOUT_MS)
        self.url = url
        self.tab = context.new_page()
        self.allowed: list[str] = []
        self._complaints: list[str] = []
        self.tab.on("console", lambda message: self._complaints.append(f"{message.type}: {message.text}"))
        self.tab.on("pageerror", lambda error: self._complaints.append(f"error: {error.stack or error}"))

    @property
    def complaints(self) -> list[str]:
        """Of the browser: console, errors of scripts, reports of the content security policy."""
        return [one for one in self._complaints if not any(words in one for words in self.allowed)]

    def log_in(self, user: str = "guest", password: str | None = None) -> "Person":
        """From the start, until the overview is there."""
        self.tab.goto(self.url)
        self.tab.get_by_label("User").fill(user)
        self.tab.get_by_label("Password").fill(user if password is None else password)
        self.button("Log in").click()
        self.sees_heading("Overview")
        return self

    def opens(self, *segments: str, heading: str | None = None) -> None:
        """Go to a page, by its address, and wait for its heading."""
        self.tab.goto(f"{self.url}#/{'/'.join(quote(one, safe='') for one in segments)}")
        if heading is not None:
            self.sees_heading(heading)

    def button(self, name: str, *, within: Any = None) -> Any:
        """The button of that name."""
        return (within or self.tab).get_by_role("button", name=name, exact=True)

    def link(self, name: str) -> Any:
        """The first link with just that text, on the page itself."""
        return self.tab.locator("main").get_by_role("link", name=name, exact=True).first

    def panel(self, title: str) -> Any:
        """A section by its heading."""
        return self.tab.get_by_role("region", name=title, exact=True)

    def unfolds(self, title: str) -> Any:
        """Open what is folded, and give it."""
        fold = self.tab.locator("details").filter(has=self.tab.locator("summary", has_text=title)).last
        fold.locator("summary").click()
        return fold

    def turns_to(self, part: str) -> None:
        """Show a part of the page of one object."""
        self.tab.get_by_role("navigation", name="Parts of this page").get_by_role("link", name=part, exact=True).click()

    def fills(self, form: Any, **values: str) -> None:
        """Fields by the names they are sent by."""
        for name, value in values.items():
            field = form.locator(f"[name={name}]")
            if field.evaluate("field => field.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(value)

    def row(self, text: str) -> Any:
        """The rows of tables with that text."""
        return self.tab.get_by_role("row").filter(has_text=text)

    def confirms(self, verb: str, *, typed: str | None = None, asked: str | None = None) -> None:
        """Take the second step."""
        dialog = self.tab.get_by_role("dialog")
        if typed is not None:
            assert self.button(verb, within=dialog).is_disabled()
            dialog.get_by_role("textbox").fill(typed)
        if asked is not None:
            dialog.get_by_role("textbox").fill(asked)
        self.button(verb, within=dialog).click()

    def sees(self, text: str, *, within: Any = None) -> None:
        """Wait until the text is shown."""
        (within or self.tab).get_by_text(text).first.wait_for()

    def sees_at_once(self, place: Any) -> None:
        """Wait until it is shown; nothing has to be moved for that."""
        place.wait_for()
        expression = (
            "one => { const box = one.getBoundingClientRect(); return box.top >= 0 && box.bottom <= innerHeight; }"
        )
        for _ in range(100):  # the page may still move it there
            if place.evaluate(expression):
                return
            self.tab.wait_for_timeout(50)
        raise AssertionError(f"{place} is outside of the screen")

    def sees_heading(self, name: str) -> None:
        """Wait until the page has that title."""
        self.tab.get_by_role("heading", name=name, level=1).wait_for()

    def sees_no(self, locator: Any) -> None:
        """Wait until it is gone."""
        locator.first.wait_for(state="detached")

    def is_too_wide(self) -> bool:
        """Whether the page has to be moved sideways."""
        return bool(self.tab.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))
