"""A project of its own for tests of the pytest plug-in: a folder with tests, and pytest in it, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent


class Project:
    """A folder with tests, and pytest in it. Warnings are errors, and so is what pytest-asyncio says where it is not configured: tests ask for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configure()

    def configure(self, *lines: str) -> None:
        """Write the configuration file."""
        fixed = "[pytest]\naddopts = --strict-config --strict-markers -p no:asyncio\nfilterwarnings = error\n"
        self.write("pytest.ini", fixed + "".join(f"{line}\n" for line in lines))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(dedent(text))

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.python("-m", "pytest", "-p", "no:cacheprovider", *arguments, **environment)

    def python(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, *arguments]
        environ = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **environment}
        environ.pop("PYTEST_ADDOPTS", None)
        return subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, timeout=120, check=False)

    def passes(self, *arguments: str, **environment: str) -> str:
        done = self.run(*arguments, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def figures(self) -> list[dict[str, int | str]]:
        return [json.loads(file.read_text()) for file in sorted(self.folder.glob("figures.*.json"))]
