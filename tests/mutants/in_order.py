"""A plug-in of pytest: only the tests that a file names, in its order (`--in-order FILE`).

Generated tests look for no simpler example of what fails: nobody reads it, and the budget would be over before.
"""

from pathlib import Path

import pytest
from hypothesis import Phase, settings

settings.register_profile("first", phases=(Phase.explicit, Phase.reuse, Phase.generate))
settings.load_profile("first")  # what `tests/conftest.py` says comes on top


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--in-order`."""
    parser.addoption("--in-order", metavar="FILE", help="run what FILE names, in this order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After all others that sort."""
    if (file := config.getoption("--in-order")) is not None:
        place = {name: at for at, name in enumerate(Path(file).read_text().splitlines())}
        items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])
