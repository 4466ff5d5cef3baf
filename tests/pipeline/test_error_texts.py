"""What a command says when it fails: the job once, and the file that is meant."""

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("deltalake", reason="the pipeline's libraries are not installed (make spark)")
pytest.importorskip("duckdb", reason="DuckDB is not installed (make spark)")

from lakes import fill
from recorded_broker import RecordedBroker

from leveret.pipeline.__main__ import main
from leveret.pipeline.output.formats import write_text


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a journal without deliveries, and without contents."""
    root = tmp_path_factory.mktemp("durable")
    broker = RecordedBroker(root / "journal", scope="durable")
    broker.declare("q")
    broker.publish("q", 3)
    broker.tick()
    broker.close()
    fill(root / "journal", root / "lake")
    return str(root / "lake")


@pytest.mark.parametrize(
    "words, said",
    [
        (("latency",), "leveret pipeline latency: not recorded; deliveries are in the journal only with"),
        (("replay", "--where", "true"), "leveret pipeline replay: the lake has no contents, which a replay needs; run"),
        (("trace", "a-header=1"), "leveret pipeline trace: the lake has no contents, which a search by header or"),
    ],
)
def test_the_job_is_said_once(words: tuple[str, ...], said: str, lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the sentence, which does not begin with it again."""
    assert main([*words, "--lake", lake]) == 1
    assert f"\n{said}" in f"\n{capsys.readouterr().err}"


def test_a_directory_in_place_of_a_file(lake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The path that was given is named, and nothing is left beside it."""
    (tmp_path / "out.csv").mkdir()
    assert main(["loss", "--lake", lake, "--out", str(tmp_path / "out.csv")]) == 1
    assert f"leveret pipeline loss: {tmp_path}/out.csv: Is a directory\n" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["out.csv"]
    assert main(["loss", "--lake", lake, "--lineage", str(tmp_path)]) == 0
    assert f"leveret pipeline loss: --lineage {tmp_path}: Is a directory\n" in capsys.readouterr().err


def test_a_file_that_finds_the_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves nothing behind, and the error is about the file."""

    def write(path: Path, text: str, encoding: str) -> None:
        path.write_bytes(text[:2].encode(encoding))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", write)
    with pytest.raises(OSError) as raised:
        write_text(str(tmp_path / "page.html"), "text")
    assert raised.value.filename == str(tmp_path / "page.html") and not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_replaced(tmp_path: Path) -> None:
    """The error is about the file."""
    (tmp_path / "page.html").mkdir()
    with pytest.raises(OSError) as raised:
        write_text(str(tmp_path / "page.html"), "text")
    assert raised.value.filename == str(tmp_path / "page.html")
