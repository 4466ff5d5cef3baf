"""The engines. One Spark session for all tests that need one: starting Java is the dear part."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """`local[2,2]`: small, quick to start, a failed task is tried once more. Skips where Spark or Java is absent."""
    pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
    pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
    from leveret.pipeline.java import NoJava, find_java
    from leveret.pipeline.session import SessionOptions, open_session

    scratch: Path = tmp_path_factory.mktemp("spark")
    try:
        find_java(os.environ, scratch)
    except NoJava as error:
        pytest.skip(str(error))
    options = SessionOptions("local[2,2]", "tests", "1g", shuffle_partitions=2, is_test=True)
    session = open_session(options, scratch=scratch)
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Each of the two: what asks for it runs twice."""
    if request.param == "spark":
        from leveret.pipeline.engines.spark import SparkEngine

        found: Any = SparkEngine(request.getfixturevalue("spark"))
    else:
        pytest.importorskip("duckdb", reason="DuckDB is not installed (make spark)")
        from leveret.pipeline.engines.local import LocalEngine

        found = LocalEngine(tmp_path_factory.mktemp("local"), threads=1, memory_mb=512)
    yield found
    found.close()
