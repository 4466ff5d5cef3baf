"""The files that docs/testing-your-application.md tells its readers to make, and the README's test."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def write_guide(folder: Path) -> list[str]:
    """Write them as they stand there; returns their names."""
    page = (ROOT / "docs" / "testing-your-application.md").read_text()
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL)
    (example,) = re.findall(r"```python\n# test_orders.py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    files.append(("test_orders.py", example))
    for name, text in files:
        (folder / name).write_text(text)
    return [name for name, _ in files]
