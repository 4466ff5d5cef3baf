"""No test depends on what listens on this machine."""

import pytest
from default_ports import DEFAULT_PORTS, is_taken


@pytest.mark.parametrize("port", DEFAULT_PORTS)
def test_default_ports_are_taken_while_tests_run(port: int) -> None:
    """A test that starts a broker on them, or without saying where its console listens, fails at once everywhere."""
    assert is_taken(port)
