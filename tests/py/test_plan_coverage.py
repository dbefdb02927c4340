"""docs/plan-coverage.md: every file and every name that it refers to exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = re.compile(r"`([\w./-]+/[\w./-]+\.(?:go|c|h|def|py|pml)): (\w+)`")


def references() -> list[tuple[str, str]]:
    return REFERENCE.findall((ROOT / "docs" / "plan-coverage.md").read_text(encoding="utf-8"))


def test_every_reference_exists() -> None:
    missing = []
    for file, name in references():
        path = ROOT / file
        if not path.is_file():
            missing.append(f"{file}: no such file")
        elif not re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")):
            missing.append(f"{file}: no {name}")
    assert not missing, "\n".join(missing)


def test_tests_are_referred_to_where_they_are_defined() -> None:
    for file, name in references():
        text = (ROOT / file).read_text(encoding="utf-8")
        if name.startswith("test_"):
            assert re.search(rf"^ *(?:async )?def {name}\(", text, re.MULTILINE), f"{file} does not define {name}"
        elif name.startswith("Test"):
            assert re.search(rf"^func {name}\(", text, re.MULTILINE), f"{file} does not define {name}"


def test_rows_have_a_test_or_say_why_not() -> None:
    """A row without a test says fact, later, not built, or points at other rows."""
    rows = [line for line in (ROOT / "docs" / "plan-coverage.md").read_text(encoding="utf-8").splitlines() if re.match(r"\| \d+\w? \|", line)]
    assert len(rows) > 90
    for row in rows:
        _, number, says, code, test, _ = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
        assert says and (code or test), number
        assert test or re.search(r"\*fact\*|\*later\*|not built|rows? \d", code), f"row {number} has no test and no reason"
