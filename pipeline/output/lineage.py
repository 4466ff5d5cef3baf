"""Lineage: events in the format of OpenLineage, for services that collect the inputs and outputs of jobs.

A job has one event at its end, COMPLETE or FAIL, with its input (the journal or the lake), its outputs and their
columns.
Source: OpenLineage 2.0.2, RunEvent; its naming of datasets.
"""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from ..schemas import Columns

SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACET = "https://openlineage.io/spec/facets/1-0-0/{name}Facet.json#/$defs/{name}Facet"
PRODUCER = "urn:leveret:pipeline"
TIMEOUT_SECONDS = 10


def event(
    job: str,
    *,
    inputs: Sequence[str],
    outputs: Mapping[str, tuple[Columns, int]],
    error: str | None = None,
    at: datetime | None = None,
    run_id: str | None = None,
) -> dict[str, Any]:
    """An event. `inputs`: paths or URIs. `outputs`: path -> columns, number of rows. `error`: why the job failed."""
    facets = (
        {}
        if error is None
        else {"errorMessage": _facet("ErrorMessageRun", message=error, programmingLanguage="Python")}
    )
    return {
        "eventType": "COMPLETE" if error is None else "FAIL",
        "eventTime": (at or datetime.now(UTC)).isoformat(),
        "run": {"runId": run_id or str(uuid.uuid4()), "facets": facets},
        "job": {"namespace": "leveret", "name": f"pipeline.{job}"},
        "inputs": [_dataset(path) for path in inputs],
        "outputs": [
            {
                **_dataset(path),
                "facets": {
                    "schema": _facet("SchemaDataset", fields=[{"name": one.name, "type": one.type} for one in columns])
                },
                "outputFacets": {"outputStatistics": _facet("OutputStatisticsOutputDataset", rowCount=rows)},
            }
            for path, (columns, rows) in outputs.items()
        ],
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
    }


def emit(found: Mapping[str, Any], target: str) -> None:
    """Send an event to an http(s) URL, or append it as a line to a file.

    Raises: OSError (also if the server answers with an error).
    """
    line = json.dumps(found)
    if not target.startswith(("http://", "https://")):
        with open(target, "a", encoding="utf-8") as file:
            file.write(line + "\n")
        return
    import urllib.request  # takes 20 ms, and is seldom needed

    request = urllib.request.Request(target, line.encode(), {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
        pass


def _dataset(path: str) -> dict[str, Any]:
    """A dataset's namespace and name. Of a path: `file`, the absolute path. Of a URI: scheme and host, the path."""
    if "://" not in path:
        return {"namespace": "file", "name": os.path.abspath(path)}
    parts = urlsplit(path)
    return {"namespace": f"{parts.scheme}://{parts.netloc}", "name": parts.path.lstrip("/") or "/"}


def _facet(name: str, **more: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": FACET.format(name=name), **more}
