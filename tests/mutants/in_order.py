"""A plug-in of pytest: only the tests that a file names, in its order (`--in-order FILE`)."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--in-order`."""
    parser.addoption("--in-order", metavar="FILE", help="run what FILE names, in this order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After all others that sort."""
    if (file := config.getoption("--in-order")) is not None:
        place = {name: at for at, name in enumerate(Path(file).read_text().splitlines())}
        items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])
