"""What a wheel must be like that goes to other machines: the files that belong there, and libraries that ask for nothing which such a machine may lack.

``python buildsystem/wheel_check.py WHEEL...`` prints what is wrong, and exits with 1. Needs pyelftools.
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

GLIBC = (2, 28)
"""The newest version of the C library that may be needed: that of RHEL 8, Debian 10, Ubuntu 20.04 (PEP 600: manylinux_2_28)."""

SYSTEM_LIBRARIES = {"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
"""Parts of the C library: all that is there wherever it is. No libpython: an interpreter that is linked statically has none."""

FILES = {
    "_tack_memory_pytest.py",
    "tack_memory/__init__.py",
    "tack_memory/py.typed",
    "tack_memory/_pages/timeline.js",
    "tack_memory/include/tack_memory.h",
    "tack_memory/_native/_events.pyi",
    "tack_memory/_native/_fast.pyi",
    "tack_memory/_native/_numpy.pyi",
    "tack_memory/_native/bindings.py",
    "tack_memory/_native/go.py",
    "tack_memory/_native/libtack_memory_simcuda.so",
    "tack_memory/_native/libtack_memory_simhip.so",
    "tack_memory/_native/libtack_memory_simlevelzero.so",
}
MODULES = ("_events", "_numpy", "_tm")
"""The extension modules, each for the one Python that the wheel's name says."""


def problems(wheel: Path) -> list[str]:
    """What is wrong with a wheel, a sentence each; nothing: it can go out."""
    named = re.fullmatch(r"(?P<name>\w+)-(?P<version>[\w.]+)-cp(?P<python>\d+)-cp(?P=python)-(?P<platform>[\w.]+)\.whl", wheel.name)
    if named is None:
        return [f"{wheel.name}: the name is not that of a wheel for one CPython, as name-version-cp311-cp311-platform.whl"]
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        information = f"{named['name']}-{named['version']}.dist-info"
        suffix = f".cpython-{named['python']}-x86_64-linux-gnu.so"
        wanted = (
            FILES | {f"tack_memory/_native/{module}{suffix}" for module in MODULES} | {f"{information}/entry_points.txt", f"{information}/licenses/LICENSE"}
        )
        found += [f"{name} is missing" for name in sorted(wanted - names)]
        allowed = re.compile(rf"(tack_memory/|_tack_memory_pytest\.py$|{re.escape(information)}/)")
        found += [f"{name} has no business there" for name in sorted(names) if not allowed.match(name)]
        libraries = sorted(name for name in names if ".so" in Path(name).suffixes)
        found += [f"{name} is for another Python" for name in libraries if ".cpython-" in name and not name.endswith(suffix)]
        for name in libraries:
            found += [f"{name}: {wrong}" for wrong in problems_of_library(archive.read(name))]
        if f"{information}/WHEEL" in names:
            found += list(problems_of_tags(archive.read(f"{information}/WHEEL").decode(), named["python"], named["platform"]))
    return [f"{wheel.name}: {wrong}" for wrong in found]


def problems_of_tags(text: str, python: str, platform: str) -> Iterator[str]:
    """What the file WHEEL says must be what the name says, for the name is all that an installer looks at."""
    tags = set(re.findall(r"^Tag: (.*)$", text, re.MULTILINE))
    expected = {f"cp{python}-cp{python}-{one}" for one in platform.split(".")}
    if tags != expected:
        yield f"its tags are {', '.join(sorted(tags))}, and its name says {', '.join(sorted(expected))}"
    if "Root-Is-Purelib: false" not in text:
        yield "it says that it is pure Python"
    for one in platform.split("."):
        version = re.fullmatch(r"manylinux_(\d+)_(\d+)_x86_64", one)
        if one != "manylinux2014_x86_64" and (version is None or (int(version[1]), int(version[2])) > GLIBC):
            yield f"its platform is {one}, not manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64 or older"


def problems_of_library(content: bytes) -> Iterator[str]:
    """Other libraries that it needs, versions of the C library, places where it would look for libraries."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection

    elf = ELFFile(io.BytesIO(content))
    if elf["e_machine"] != "EM_X86_64":
        yield f"it is for {elf['e_machine']}"
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            for tag in section.iter_tags():
                if tag.entry.d_tag == "DT_NEEDED" and tag.needed not in SYSTEM_LIBRARIES:
                    yield f"it needs {tag.needed}, which not every machine has"
                elif tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
                    yield f"it looks for libraries in {getattr(tag, 'rpath', None) or getattr(tag, 'runpath', None)}, a folder of the machine that built it"
        elif isinstance(section, GNUVerNeedSection):
            for needed, versions in section.iter_versions():
                for version in versions:
                    parts = re.fullmatch(r"GLIBC_([\d.]+)", version.name)
                    if parts is None or tuple(map(int, parts[1].split("."))) > GLIBC:
                        yield f"it needs {version.name} of {needed.name}, and {'.'.join(map(str, GLIBC))} is the newest that may be"


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = [wrong for wheel in sys.argv[1:] for wrong in problems(Path(wheel))]
    print("\n".join(found) if found else f"{len(sys.argv) - 1} wheels: nothing is wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
