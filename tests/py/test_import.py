"""What importing the package brings in, and that it is typed and complete."""

from __future__ import annotations

import ast
import importlib.util
import pickle
from pathlib import Path

import pytest
from support import run_python

import tack_memory

HEAVY = [
    "numpy", "matplotlib", "collections", "functools", "contextlib", "threading", "asyncio", "inspect", "logging", "argparse", "dataclasses", "re",
    "json", "typing", "subprocess", "ctypes", "email", "rich", "pytest", "unittest", "multiprocessing",
]  # fmt: skip


def test_importing_brings_in_nothing_heavy() -> None:
    """What counts is what is imported beyond the bare interpreter's own. gopy's module waits for the first use of the control plane."""
    done = run_python(
        """
        import sys
        before = set(sys.modules)
        import tack_memory
        print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}), "tack_memory._native.bindings" in sys.modules)
        """
    )
    assert done.returncode == 0, done.stderr
    *modules, gopy = done.stdout.split()
    assert sorted(set(modules) & set(HEAVY)) == [] and gopy == "False"


def test_what_many_programs_never_use_is_imported_at_its_first_use() -> None:
    done = run_python(
        """
        import sys
        import tack_memory
        print(*[name for name in ("_report", "_timeline", "hosts") if "tack_memory." + name in sys.modules])
        tack_memory.memory_report, tack_memory.install
        print(*[name for name in ("_report", "_timeline", "hosts") if "tack_memory." + name in sys.modules])
        """
    )
    assert done.stdout.splitlines() == ["", "_report hosts"], done.stderr


def test_importing_opens_no_device_and_no_driver() -> None:
    done = run_python(
        """
        import tack_memory
        from tack_memory._native import _fast
        drivers = ("libcuda", "libamdhip64", "libze_loader", "libtack_memory_sim")
        print(_fast.device_names(), [name for name in drivers if name in open("/proc/self/maps").read()])
        """
    )
    assert done.stdout.strip() == "[] []", done.stderr


def test_importing_leaves_the_working_directory_and_the_environment_alone(tmp_path: Path) -> None:
    """gopy's own code changes into the package's folder while it imports; another thread could see that, and a deleted folder ends it."""
    done = run_python(
        """
        import os, sys
        os.chdir(sys.argv[1])
        os.rmdir(sys.argv[1])
        os.chdir = os.fchdir = None
        before = dict(os.environ)
        import tack_memory
        from tack_memory._native import bindings
        print(tack_memory.__version__ == bindings.Version(), dict(os.environ) == before)
        """,
        str(tmp_path),
    )
    assert done.stdout.strip() == "True True", done.stderr


def test_every_public_name_is_there_and_documented() -> None:
    assert tack_memory.__all__ == sorted(tack_memory.__all__)
    assert [name for name in dir(tack_memory) if not name.startswith("__")] == [name for name in tack_memory.__all__ if not name.startswith("__")]
    for name in tack_memory.__all__:
        value = getattr(tack_memory, name)
        if name != "__version__":
            assert value.__doc__ and len(value.__doc__) > 20, f"{name} has no docstring"


def test_a_traceback_calls_an_error_by_its_public_name() -> None:
    for name in tack_memory.__all__:
        value = getattr(tack_memory, name)
        if isinstance(value, type) and issubclass(value, BaseException):
            assert f"{value.__module__}.{value.__qualname__}" == f"tack_memory.{name}"
            if value is not tack_memory.DeviceMemoryError:
                assert type(pickle.loads(pickle.dumps(value("text")))) is value


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tack_memory.no_such_name  # noqa: B018


def test_the_package_says_that_it_is_typed() -> None:
    spec = importlib.util.find_spec("tack_memory")
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).with_name("py.typed").exists()


def test_every_public_python_function_is_annotated() -> None:
    root = Path(tack_memory.__file__).parent
    for path in sorted(root.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "wrapper":
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                bare = [argument.arg for argument in arguments if argument.annotation is None and argument.arg not in ("self", "cls")]
                assert not bare and node.returns is not None, f"{path.name}:{node.lineno} {node.name}: {bare}"
