"""The files of the page: what is served, that nothing in them can run a name, and what comes from others.

Source: management page 18, 20.
"""

import hashlib
import re
from pathlib import Path

import pytest
from api_client import ApiClient

from leveret.console.static_pages import FOLDER
from leveret.vendored import FOLDER as SHARED

OURS = sorted([*FOLDER.glob("*.html"), *FOLDER.rglob("js/**/*.js"), *FOLDER.glob("*.css")])
VENDORS = (FOLDER / "vendor", SHARED)
ROW = re.compile(r"^\| (\S+) \| (\S+) \| (\d+\.\d+\.\d+) \| (\S+) \| .*\| ([0-9a-f]{64}) \|$", re.MULTILINE)
#: What would make markup or a program of a text.
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser")
#: Octets of our own files, and of others' (management page 18: 150 KB and 70 KB; docs/console.md says why more).
OURS_MAX, VENDOR_MAX = 230_000, 75_000


def test_what_is_served(api: ApiClient) -> None:
    """Each file, with its type, without a login; the page itself is at the root."""
    for path, kind in [
        ("/", "text/html"),
        ("/js/main.js", "text/javascript"),
        ("/style.css", "text/css"),
        ("/vendor/uPlot.iife.min.js", "text/javascript"),
    ]:
        answer = api.ask("GET", path, user=None)
        assert (answer.status, answer.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy and "unsafe" not in policy


@pytest.mark.parametrize(
    "path", ["/%2e%2e/pages.py", "/js/../../pages.py", "/js%5c..%5cmain.js", "/js/", "/vendor", "/%00"]
)
def test_nothing_else_is_served(api: ApiClient, path: str) -> None:
    """Paths are looked up, not followed (management page 20, path traversal)."""
    assert api.ask("GET", path, user=None).status == 404


def test_texts_stay_texts() -> None:
    """No file of ours makes markup or a program of a text, and nothing is in line or fetched from elsewhere."""
    for file in OURS:
        text = file.read_text(encoding="utf-8")
        assert not MARKUP.search(text), file
        assert "http:" not in text.replace("http://www.w3.org", "") and "https:" not in text, file
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]* src=)|<style| on\w+=| style=", page)


def test_what_others_have_written() -> None:
    """Each file in vendor/ is listed with its version and hash, and its licence lies beside it."""
    for folder in VENDORS:
        rows = ROW.findall((folder / "README.md").read_text(encoding="utf-8"))
        listed = {name: digest for name, _, _, _, digest in rows}
        files = {file.name for file in folder.iterdir() if file.suffix in (".js", ".css")}
        assert files == set(listed)
        for name, digest in listed.items():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    licences = {file.name for folder in VENDORS for file in folder.glob("*.LICENSE")}
    assert licences == {"preact.LICENSE", "htm.LICENSE", "uPlot.LICENSE"}


def test_size() -> None:
    """The page is small (management page 18)."""

    def size(files: list[Path]) -> int:
        return sum(file.stat().st_size for file in files)

    assert size(OURS) <= OURS_MAX
    others = [file for folder in VENDORS for file in folder.iterdir() if file.suffix in (".js", ".css")]
    assert size(others) <= VENDOR_MAX
