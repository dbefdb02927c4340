"""The check of wheels that go out finds what must not be in them: each wrong one is made here. `make wheels` makes the right ones, which takes minutes."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

BUILDSYSTEM = Path(__file__).resolve().parents[2] / "buildsystem"
sys.path.insert(0, str(BUILDSYSTEM))
import wheel_check  # noqa: E402
import wheels  # noqa: E402

sys.path.remove(str(BUILDSYSTEM))

INFORMATION = "tack_memory-1.0.dist-info"
PLATFORM = "manylinux_2_27_x86_64.manylinux_2_28_x86_64"
TAGS = "".join(f"Tag: cp311-cp311-{one}\n" for one in PLATFORM.split("."))
SUFFIX = ".cpython-311-x86_64-linux-gnu.so"


def library(folder: Path, *options: str, source: str = "int tm_answer(void) { return 42; }") -> bytes:
    """A shared library that needs nothing."""
    out = folder / "library.so"
    command = ["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-o", str(out), *options]
    subprocess.run(command, input=source, text=True, check=True)
    return out.read_bytes()


def stub(folder: Path, name: str, symbol: str, version: str = "") -> list[str]:
    """Options that link with a library of that name, which has one function."""
    (folder / "map").write_text(f"{version} {{ global: {symbol}; }};")
    options = ["-Wl,-soname," + name, *([f"-Wl,--version-script={folder / 'map'}"] if version else [])]
    library(folder, *options, source=f"int {symbol}(void) {{ return 1; }}")
    (folder / "library.so").rename(folder / name)
    return ["-Wl,--no-as-needed", "-L", str(folder), f"-l:{name}"]


Change = Callable[[dict[str, bytes]], None]


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., list[str]]:
    """Makes a wheel, with one change, and gives what is wrong with it, without the wheel's name."""
    good = library(tmp_path)

    def make(change: Change = lambda files: None, name: str = f"tack_memory-1.0-cp311-cp311-{PLATFORM}.whl") -> list[str]:
        modules = [f"tack_memory/_native/{module}{SUFFIX}" for module in wheel_check.MODULES]
        files = {file: good if file.endswith(".so") else b"" for file in [*wheel_check.FILES, *modules]}
        files |= {f"{INFORMATION}/{file}": b"" for file in ("METADATA", "RECORD", "entry_points.txt", "licenses/LICENSE")}
        files[f"{INFORMATION}/WHEEL"] = f"Root-Is-Purelib: false\n{TAGS}".encode()
        change(files)
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            for file, content in files.items():
                archive.writestr(file, content)
        return [wrong.removeprefix(f"{name}: ") for wrong in wheel_check.problems(tmp_path / name)]

    return make


def with_library(content: bytes) -> Change:
    return lambda files: files.update({"tack_memory/_native/libtack_memory_simhip.so": content})


def test_a_right_wheel_has_no_problem(made: Callable[..., list[str]]) -> None:
    assert made() == []


def test_a_link_to_libpython_is_found(made: Callable[..., list[str]], tmp_path: Path) -> None:
    linked = library(tmp_path, *stub(tmp_path, "libpython3.11.so.1.0", "Py_Initialize"))
    assert made(with_library(linked)) == ["tack_memory/_native/libtack_memory_simhip.so: it needs libpython3.11.so.1.0, which not every machine has"]


def test_too_new_a_symbol_of_the_c_library_is_found(made: Callable[..., list[str]], tmp_path: Path) -> None:
    calls = "int quick_exit(void); int tm_answer(void) { return quick_exit(); }"
    for version, is_wrong in (("GLIBC_2.28", False), ("GLIBC_2.29", True), ("GLIBC_2.100", True), ("GLIBC_PRIVATE", True)):
        linked = library(tmp_path, *stub(tmp_path, "libc.so.6", "quick_exit", version), source=calls)
        expected = f"tack_memory/_native/libtack_memory_simhip.so: it needs {version} of libc.so.6, and 2.28 is the newest that may be"
        assert made(with_library(linked)) == ([expected] if is_wrong else []), version


def test_a_folder_of_the_building_machine_is_found(made: Callable[..., list[str]], tmp_path: Path) -> None:
    for option in ("--enable-new-dtags", "--disable-new-dtags"):
        (wrong,) = made(with_library(library(tmp_path, f"-Wl,{option},-rpath,/home/me/lib")))
        assert wrong.endswith("it looks for libraries in /home/me/lib, a folder of the machine that built it")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda files: files.pop("tack_memory/py.typed"), "tack_memory/py.typed is missing"),
        (lambda files: files.pop("tack_memory/include/tack_memory.h"), "tack_memory/include/tack_memory.h is missing"),
        (lambda files: files.update({"tests/test_x.py": b""}), "tests/test_x.py has no business there"),
        (
            lambda files: files.update({"tack_memory/_native/_tm.cpython-312-x86_64-linux-gnu.so": files["tack_memory/_native/libtack_memory_simcuda.so"]}),
            "tack_memory/_native/_tm.cpython-312-x86_64-linux-gnu.so is for another Python",
        ),
        (
            lambda files: files.update({f"{INFORMATION}/WHEEL": f"Root-Is-Purelib: true\n{TAGS}".encode()}),
            "it says that it is pure Python",
        ),
        (
            lambda files: files.update({f"{INFORMATION}/WHEEL": TAGS.replace("cp311-cp311", "py3-none").encode() + b"Root-Is-Purelib: false"}),
            "its tags are py3-none-manylinux_2_27_x86_64, py3-none-manylinux_2_28_x86_64, and its name says "
            "cp311-cp311-manylinux_2_27_x86_64, cp311-cp311-manylinux_2_28_x86_64",
        ),
    ],
)
def test_wrong_files_and_tags_are_found(made: Callable[..., list[str]], change: Change, expected: str) -> None:
    assert made(change) == [expected]


def test_wrong_names_are_found(made: Callable[..., list[str]]) -> None:
    assert made(name="tack_memory-1.0-py3-none-any.whl") == ["the name is not that of a wheel for one CPython, as name-version-cp311-cp311-platform.whl"]
    for platform in ("linux_x86_64", "manylinux_2_34_x86_64"):
        change: Change = lambda files, platform=platform: files.update(  # type: ignore[misc]  # noqa: E731
            {f"{INFORMATION}/WHEEL": f"Root-Is-Purelib: false\nTag: cp311-cp311-{platform}".encode()}
        )
        assert made(change, f"tack_memory-1.0-cp311-cp311-{platform}.whl") == [f"its platform is {platform}, not manylinux_2_28_x86_64 or older"]


def test_a_python_is_found_and_one_that_is_not_there_is_said() -> None:
    found = wheels.find_python(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert found is None or found.exists()  # None: Debian's Python without its headers
    assert wheels.find_python("3.0") is None
    done = subprocess.run([sys.executable, str(BUILDSYSTEM / "wheels.py"), "2.7"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no wheels are made for Python 2.7; they are for 3.11, 3.12, 3.13" in done.stderr


def test_what_is_tried_in_the_clean_environment_is_the_readmes_first_example() -> None:
    code, shown = wheels.first_example()
    assert 'set_memory_budget("64 MiB"' in code and shown.startswith("['spilled', 'spilled', 'resident', 'resident']")
    assert [line.partition("==")[0] for line in wheels.pinned(wheels.DEMO_NEEDS)] == sorted(wheels.DEMO_NEEDS)
