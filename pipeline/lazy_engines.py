"""The engines of a command, started when they are needed."""

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from .progress import Measure, say


class LazyEngines:
    """Spark and DuckDB. `open_shared`: returns a session of Spark that stays open; None: `close` ends the session."""

    def __init__(self, options: argparse.Namespace, open_shared: Callable[[], Any] | None = None) -> None:
        self._options = options
        self._open_shared = open_shared
        self._session: Any = None
        self._engine: Any = None

    def spark(self, *, is_short: bool = False) -> Any:
        """The session of Spark. `is_short`: as in `SessionOptions`, if it is opened now.

        Raises: ValueError (it is not installed), NoJava, PermissionError.
        """
        if self._session is None and self._open_shared is not None:
            self._session = self._open_shared()
        if self._session is None:
            try:
                from .session import SessionOptions, open_session
            except ImportError as error:
                raise ValueError(f"{error}; this needs pip install 'leveret[spark]'") from error
            options = self._options
            session_options = SessionOptions(
                master=options.master,
                name=f"leveret {options.job}",
                driver_memory=options.driver_memory,
                is_short=is_short,
                log_level="error" if os.environ.get("LEVERET_TRACEBACK") else "off",  # errors are reported here anyway
                more=dict(setting.split("=", 1) for setting in options.conf),
            )
            self._session = open_session(session_options)
        return self._session

    def engine_for_lake(self) -> Any:
        """The engine for the command's lake. Raises: ValueError, OSError, and as `spark`."""
        from .engines.spark import PARTITIONS, SparkEngine, is_one_process
        from .jobs.opening import LOCAL, SHORT_MAX, choose_engine
        from .lake.lake import rows_by_node

        options = self._options
        if choose_engine(options.lake, options.engine, master=options.master, tell=partial(say, options.job)) != LOCAL:
            counts, is_here = rows_by_node(options.lake, "events"), is_one_process(options.master)
            self._engine = SparkEngine(self.spark(is_short=is_here and counts.total() <= SHORT_MAX))
            if not is_here and not any(setting.startswith(f"{PARTITIONS}=") for setting in options.conf):
                self._engine.expect(max(counts.values(), default=0))  # nodes are read one after the other
            return self._engine
        try:
            from .engines.local import LocalEngine

            self._engine = LocalEngine()
        except ImportError as error:
            raise ValueError(f"{error}; this needs pip install 'leveret[pipeline]'") from error
        return self._engine

    def measure(self) -> Measure | None:
        """A function that counts the tasks of Spark, for the progress bar; None: Spark does not run."""
        return None if self._session is None else task_progress(self._session)

    def close(self) -> None:
        """Release what the command has cached, and end what it has started."""
        is_own = self._session is not None and self._open_shared is None
        if self._engine is not None and not (is_own and self._engine.name == "spark"):
            self._engine.close()
        if is_own:
            self._session.stop()


def task_progress(spark: Any) -> Measure:
    """A function that returns (finished tasks, all tasks) of the running stages of Spark."""
    tracker = spark.sparkContext.statusTracker()

    def measure() -> tuple[int, int]:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [one for one in stages if one is not None]
        return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)

    return measure
