"""One Spark session for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """local[2], small, UTC; skips where the extra or Java isn't installed."""
    pytest.importorskip("pyspark", reason="needs leveret[spark]")
    from leveret.pipeline.java import NoJava
    from leveret.pipeline.session import SessionOptions, open_session

    options = SessionOptions("local[2]", "tests", "1g", shuffle_partitions=2, is_test=True)
    try:
        session = open_session(options, scratch=tmp_path_factory.mktemp("spark"))
    except NoJava as error:
        pytest.skip(str(error))
    yield session
    session.stop()
