"""The README's example runs, and prints what the README says."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_prints_what_the_readme_shows():
    blocks = re.findall(r"```(\w+)\n(.*?)```", README.read_text(), flags=re.S)
    code, shown = blocks[0], blocks[1]
    assert (code[0], shown[0]) == ("python", "text")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TACK_MEMORY_", "TMSOFT_"))}
    done = subprocess.run([sys.executable, "-c", code[1]], env=environment, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert without_seconds(done.stdout) == without_seconds(shown[1])


def without_seconds(text: str) -> str:
    return re.sub(r"[0-9.e-]+ s>", "... s>", text)
