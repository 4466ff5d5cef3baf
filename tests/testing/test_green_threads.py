"""Processes whose sockets and threads are replaced: an error that names the way out."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "library, patch",
    [
        ("gevent", "from gevent import monkey; monkey.patch_all()"),
        ("eventlet", "import eventlet; eventlet.monkey_patch()"),
    ],
)
def test_the_way_out_is_named(library: str, patch: str) -> None:
    """Instead of an attribute that trio misses."""
    program = f"{patch}\nimport leveret.testing"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert f"ImportError: {library} has replaced the sockets and threads of this process" in done.stderr
    assert "`leveret test-server`" in done.stderr


@pytest.mark.parametrize("library", ["gevent.monkey", "eventlet.patcher"])
def test_a_library_that_patched_nothing_is_no_error(library: str) -> None:
    """It may be installed, and imported."""
    program = f"import {library}\nfrom leveret.testing import start_broker\nwith start_broker(): print('ok')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "ok\n", done.stderr
