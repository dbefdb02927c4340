"""What the README shows of the pytest plug-in is what it does."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_project import Project

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_readmes_example_prints_what_it_shows(project: Project) -> None:
    section = README.read_text().partition("\n## In tests\n")[2].partition("\n## ")[0]
    (code, shown) = re.findall(r"```(?:python title=\"test_smooth.py\"|text)\n(.*?)```", section, flags=re.S)
    (grew,) = re.findall(r"^    (grew .*)$", section, flags=re.M)
    project.write("test_smooth.py", code)
    project.write("memory.txt", "test_smooth.py::test_smooth sim:0 25165824\n")
    done = project.run("-q", "--device-memory-baseline", "memory.txt")
    assert shown in done.stdout
    assert re.sub(" +", " ", grew) in re.sub(" +", " ", done.stdout)
