"""docs/notebooks.md, run word by word in a process of its own, whose session nobody has prepared."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from recorded_broker import RecordedBroker

pytest.importorskip("pyspark", reason="Spark is not installed (make spark)")
from leveret.pipeline.java import NoJava, find_java

pytestmark = pytest.mark.spark
#: Little to compute: what takes long is to start.
QUICK = (
    "--driver-memory 600m --driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'"
    " --conf spark.sql.shuffle.partitions=1 --conf spark.ui.enabled=false"
    " --conf spark.sql.codegen.wholeStage=false --conf spark.sql.codegen.factoryMode=NO_CODEGEN pyspark-shell"
)
ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_notebooks(tmp_path: Path) -> None:
    """Spark finds the data source by itself: the page registers nothing.

    `src` is on the path as site-packages would be, for Spark looks through directories, not through import hooks.
    """
    try:
        java = find_java(os.environ, tmp_path)
    except NoJava as error:
        pytest.skip(str(error))
    one = RecordedBroker(tmp_path / "leveret-data" / "journal")
    one.declare("orders")
    one.publish("orders", 3)
    one.get("orders")
    one.tick()
    one.close()
    page = (ROOT / "docs/notebooks.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 5 and "register" not in "".join(blocks)
    program = tmp_path / "notebook.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    environment = {
        **os.environ,
        "JAVA_HOME": java,
        "PYTHONPATH": str(ROOT / "src"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": QUICK,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run([sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
