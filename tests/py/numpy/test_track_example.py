"""The example that prints a report, run as a reader runs it: what its text says of the program is what the report shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def test_the_example_prints_its_report_and_writes_the_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "numpy_tracking.py"), str(page)],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    source = (EXAMPLES / "numpy_tracking.py").read_text().splitlines()

    def line_of(text: str) -> int:
        (number,) = [number for number, line in enumerate(source, 1) if text in line]
        return number

    holders = [next(i for i, line in enumerate(lines) if f"numpy_tracking.py:{line_of(text)}" in line and not line.startswith("peak")) for text in (
        "found = np.empty(", "return data - data.mean", "np.ascontiguousarray(",
    )]  # fmt: skip
    head = next(i for i, line in enumerate(lines) if line.endswith(" line"))
    assert sorted(holders) == [head + 1, head + 2, head + 3], "these three held the peak"
    assert all(lines[i].split()[:2] == ["28.1", "MiB"] for i in holders)
    assert "peak: 85." in done.stdout or "peak: 86." in done.stdout or "peak: 84." in done.stdout
    assert any(line.startswith("not covered: ") for line in lines)
    assert "5 shapes of 9,216 points" in lines[-1]
    assert page.read_text().count("<tr>") > 5
