"""The package as it is built and installed: one shared object, typed, light to import, and a wheel that needs nothing but CPython."""

from __future__ import annotations

import email
import importlib.metadata
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from support import run_python

import tack_memory
from tack_memory._native import SIM_LIBRARIES, _fast, bindings, sim_library_path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = Path(tack_memory.__file__).parent / "_native"

as_shared_object = pytest.mark.skipif(
    _fast.__name__ in sys.builtin_module_names, reason="needs the extension as a shared object, as in 'make test'; the interpreter of 'make race' has it inside"
)


def ended_well(script: str, *arguments: str, **environment: str) -> str:
    done = run_python(script, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def readelf(option: str, file: Path) -> str:
    return subprocess.run(["readelf", "-W", option, str(file)], capture_output=True, text=True, check=True).stdout


def needed(file: Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic", file)))


def exported(file: Path) -> set[str]:
    """Names of functions and data that the file offers to others."""
    lines = (line.split() for line in readelf("--dyn-syms", file).splitlines())
    return {f[7].split("@")[0] for f in lines if len(f) == 8 and f[4] in ("GLOBAL", "WEAK") and f[6] != "UND"}


def sanitized() -> bool:
    """Whether this is a run of 'make asan': its object needs the sanitizer's runtime, and exports more."""
    return "libasan" in os.environ.get("LD_PRELOAD", "")


def test_version_is_one() -> None:
    assert tack_memory.__version__ == importlib.metadata.version("tack-memory") == bindings.Version()


@as_shared_object
def test_both_modules_are_in_one_object() -> None:
    from tack_memory._native import _tm

    assert _fast.__file__ == _tm.__file__
    assert Path(str(_tm.__file__)).parent == NATIVE
    names = {name for name in exported(Path(_tm.__file__)) if not (sanitized() and not name.startswith("PyInit_"))}
    assert names == {"PyInit__tm", "PyInit__fast"}


SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


@as_shared_object
def test_native_files_need_the_c_library_only() -> None:
    found = [*NATIVE.glob("*.so")]
    assert len(found) >= 2
    for file in found:
        extra = {name for name in needed(file) - SYSTEM_LIBRARIES if not (sanitized() and "san.so" in name)}
        assert not extra, f"{file.name} needs {extra}"


@pytest.mark.parametrize(("kind", "function"), [("sim", "cuInit"), ("sim-hip", "hipInit"), ("sim-level_zero", "zeInit")])
def test_a_software_driver_is_nobody_elses_library(kind: str, function: str) -> None:
    """With the vendor's name as its SONAME, every later dlopen of libcuda.so.1 in the process would be given the fake."""
    driver = Path(sim_library_path(kind))
    assert re.findall(r"\(SONAME\).*\[(.+)\]", readelf("--dynamic", driver)) == [driver.name]
    assert function in exported(driver)


def test_control_plane_is_refused_in_a_forked_child() -> None:
    """Also while other threads work; deleting gopy's objects is silent, and the parent goes on."""
    script = """
        import os, sys, threading, time, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python >= 3.12 warns of forking with threads: that is the case here
        import tack_memory
        from tack_memory._native import bindings, go

        kept = go.Slice_int([1, 2, 3])
        stop = False
        def work():
            while not stop:
                bindings.Version()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        failures = 0
        for _ in range(100):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    bindings.Version()
                except tack_memory.ForkError as e:
                    code = 0 if "spawn" in str(e) else 2
                kept.__del__()
                os._exit(code)
            deadline = time.monotonic() + 60
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(child, 9)
                time.sleep(0.001)
            failures += ended[1] != 0
        stop = True
        for t in threads:
            t.join()
        assert list(kept) == [1, 2, 3]
        sys.exit(f"{failures} children failed" if failures else 0)
    """
    ended_well(script)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12 or newer, where interpreters can have a GIL of their own")
@as_shared_object
def test_own_gil_subinterpreter_is_refused() -> None:
    script = """
        import sys
        import tack_memory
        create = __import__("_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters")
        interpreter = create.create()
        try:
            result = create.run_string(interpreter, "import tack_memory")
        except Exception as e:
            result = e
        text = str(getattr(result, "formatted", result))
        sys.exit(0 if "ImportError" in text and "interpreter" in text else f"not refused: {text}")
    """
    ended_well(script)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, built as pip builds it, with what the build needs taken from this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment())
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.iterdir()
    return made


def clean_environment() -> dict[str, str]:
    """Without what a sanitizer's run, or this test run, needs."""
    return {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "PYTHONPATH", "PYTHONMALLOC") and not k.startswith(("TACK_MEMORY_", "TMSOFT_"))}


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"])
def test_a_python_that_is_too_old_is_refused_before_anything_is_built(hook: str) -> None:
    script = f"import sys; import backend; print(backend.{hook}()); sys.version_info = (3, 10, 13, 'final', 0); print(backend.{hook}())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "buildsystem")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert len(done.stdout.splitlines()) == 1, "this one is new enough"
    assert done.returncode == 1 and "tack-memory: needs Python 3.11 or newer, and " in done.stderr and done.stderr.endswith(" is 3.10\n")


def test_wheel_contents(wheel: Path) -> None:
    """Everything that the checkout's package has, and nothing that does not belong."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = email.message_from_bytes(archive.read(next(n for n in names if n.endswith(".dist-info/METADATA"))))
        tags = email.message_from_bytes(archive.read(next(n for n in names if n.endswith(".dist-info/WHEEL"))))
    package = {n for n in names if ".dist-info/" not in n}
    python = ROOT / "python"
    sources = {f.name for f in python.glob("*.py")}
    sources |= {str(f.relative_to(python)) for kind in ("*.py", "*.pyi", "py.typed", "*.css", "*.js") for f in (python / "tack_memory").rglob(kind)}
    suffix = __import__("sysconfig").get_config_var("EXT_SUFFIX")
    extensions = {f"tack_memory/_native/{name}{suffix}" for name in ("_tm", "_events", "_numpy")}
    assert {"tack_memory/py.typed", "tack_memory/_native/_fast.pyi", "tack_memory/_native/bindings.py"} <= package
    assert package == sources | extensions | {"tack_memory/include/tack_memory.h"} | {f"tack_memory/_native/{name}" for name in SIM_LIBRARIES.values()}
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert metadata["Version"] == tack_memory.__version__
    assert not [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r], "the base install needs nothing but CPython"
    assert {"demo", "bench", "test", "dev"} <= set(metadata.get_all("Provides-Extra", []))
    assert tags["Root-Is-Purelib"] == "false"
    assert re.fullmatch(rf"cp3{sys.version_info[1]}-cp3{sys.version_info[1]}-linux_\w+", tags["Tag"])


def test_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True, with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)  # which is all that pip does with this wheel
    script = """
import sys, tack_memory
assert tack_memory.__file__.startswith(sys.prefix), tack_memory.__file__
for device in ("sim:0", "sim-hip:0", "sim-level_zero:0"):
    buffer = tack_memory.allocate("1 MiB", device)
    buffer.copy_from_host(b"abc")
    assert buffer.spill() == 2**20 and buffer.is_spilled
    assert bytes(buffer.copy_to_host(nbytes=3)) == b"abc"
    print(tack_memory.memory_info(device).spilled)
"""
    done = subprocess.run(
        [str(python), "-c", script], cwd=tmp_path, env={**clean_environment(), "TACK_MEMORY_SIM": "64 MiB"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(2**20)] * 3


def test_the_wheel_brings_the_pytest_plug_in(wheel: Path, tmp_path: Path) -> None:
    """Also where tack_memory is imported before pytest, as in a notebook, and warnings are errors."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "test_it.py").write_text("def test_it(): ...\n")
    script = """
import sys, tack_memory, pytest
code = pytest.main(["-W", "error", "-p", "no:cacheprovider", "-p", "no:asyncio", "--device-memory-simulate", "64 KiB", "test_it.py"])
print(tack_memory.__file__, sys.modules["_tack_memory_pytest"].__file__)
sys.exit(code)
"""
    environment = {**clean_environment(), "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "device memory: nothing was simulated" in done.stdout and "1 passed" in done.stdout
    assert done.stdout.split()[-2:] == [str(tmp_path / "site" / "tack_memory" / "__init__.py"), str(tmp_path / "site" / "_tack_memory_pytest.py")]
