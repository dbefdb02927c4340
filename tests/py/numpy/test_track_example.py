"""The example that prints a report, run as a reader runs it: what its text says of the program is what the report shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from numpy_support import OLD

CHECKOUT = Path(__file__).resolve().parents[3]
EXAMPLES = CHECKOUT / "examples"


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


@pytest.mark.skipif(OLD, reason="the README shows what it prints on NumPy 2, where an array's memory has another size now and then")
def test_the_readme_shows_what_it_prints(tmp_path: Path) -> None:
    """All but times, the memory of the process, and where the checkout is."""
    readme = (CHECKOUT / "README.md").read_text()
    (shown,) = re.findall(r"```text\n(NumPy's arrays:.*?)```", readme, flags=re.S)
    page = tmp_path / "numpy_tracking.html"
    done = subprocess.run(
        [sys.executable, "examples/numpy_tracking.py", str(page)],
        cwd=CHECKOUT,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = done.stdout.replace(str(page), page.name)
    assert what_does_not_vary(printed) == what_does_not_vary(shown)


def what_does_not_vary(report: str) -> str:
    for varies in (r"after [0-9.]+ m?s\b", r"process has [0-9.]+ MiB", r"\S+/(?=examples/)"):
        report = re.sub(varies, "...", report)
    return report
