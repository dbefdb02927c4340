"""docs/hosts.md names every kind of hold and every seam that the code has, and ARCHITECTURE.md every module of hosts."""

from __future__ import annotations

import re
from pathlib import Path

from tack_memory import hosts
from tack_memory.hosts import _array_seams, _images
from tack_memory.hosts._ablation import KINDS

ROOT = Path(__file__).resolve().parents[3]
DOCS = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    (found,) = re.findall(rf"^#+ {re.escape(title)}$(.*?)(?=^#+ |\Z)", DOCS, re.MULTILINE | re.DOTALL)
    return str(found)


def test_every_kind_of_hold_is_in_the_table() -> None:
    rows = re.findall(r"^\| (\w+) \|", section("Kinds of holds"), re.MULTILINE)
    assert sorted(set(rows) - {"kind"}) == sorted(KINDS)


def test_every_seam_of_the_array_generation_is_in_its_tables() -> None:
    text = section("Array generation (modelled on the plan)")
    names = {
        *_array_seams._BUFFER_METHODS,
        *_array_seams._BACKEND_METHODS,
        *_array_seams.EXTRA_COPIES,
        *_array_seams.HANDS_OUT,
        *_array_seams.PACKERS,
        *_array_seams.MPI_MODULES,
        *_array_seams.TEXTURES,
        *_images.IMAGE_CACHES,
        *(vendor.buffer for vendor in _array_seams.VENDORS),
        *(one.buffer for one in _array_seams.ONLY_COUNTED),
        *("_allocate", "to_dlpack", "_exported", "current_backend", "DeviceMemoryError", _array_seams.ALLOCATES_FOR_MPI, _array_seams.IMAGE),
    }
    told = " ".join(re.findall(r"`([^`]+)`", text))
    assert not [name for name in sorted(names) if not re.search(rf"\b{name}\b", told)]


def test_every_module_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    modules = [path.stem for path in Path(hosts.__file__).parent.glob("_[a-z]*.py")]
    assert len(modules) > 30
    assert not [name for name in sorted(modules) if f"`{name}`" not in text]


def test_every_test_that_shows_a_hold_exists() -> None:
    folders = [path for path in (ROOT / "tests" / "py" / "hosts").rglob("*.py")]
    named = set(re.findall(r"`(test_\w+\.py)`", DOCS))
    assert named and named <= {path.name for path in folders} | {"test_cpu_threading.py"}  # that one is Tack's
