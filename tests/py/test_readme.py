"""The README's examples run, and print what the README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"

BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README.read_text(), flags=re.S)
EXAMPLES = [(code, shown) for code, shown in zip(BLOCKS, BLOCKS[1:], strict=False) if code[0] == "python"]


def test_there_are_examples():
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize(("code", "shown"), EXAMPLES)
def test_the_example_prints_what_the_readme_shows(code, shown):
    assert shown[0] == "text"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TACK_MEMORY_", "TMSOFT_"))}
    done = subprocess.run([sys.executable, "-c", code[1]], env=environment, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert without_seconds(done.stdout) == without_seconds(shown[1])


def without_seconds(text: str) -> str:
    return re.sub(r"[0-9.e-]+ s>", "... s>", text)
