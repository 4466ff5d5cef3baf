"""What others have written and more than one room shows: uPlot, for the console's page and the pipeline's report.

A leaf. `README.md` lists each file with its version and hash. What the console alone needs is in its page/vendor.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
UPLOT_PROGRAM, UPLOT_STYLE = "uPlot.iife.min.js", "uPlot.min.css"
#: What is served or embedded, with the licence that goes with it.
UPLOT = (UPLOT_PROGRAM, UPLOT_STYLE, "uPlot.LICENSE")


def text(name: str) -> str:
    """One of the files. Raises: OSError."""
    return (FOLDER / name).read_text(encoding="utf-8")
