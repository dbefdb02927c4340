"""`import tack_memory` is enough: Tack is plugged in by itself, whichever is imported first, and what is not a known Tack is left alone.

Each test runs in a process of its own, where a stand-in is called tack: one of the mini-hosts (each has the shape of one generation of Tack), or
a few lines that the test writes.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from textwrap import dedent

import pytest
from support import run_python

HERE = Path(__file__).parent
STAND_INS = {"array generation": HERE.parents[1] / "examples" / "minihost", "field generation": HERE / "hosts" / "fieldhost"}
ORDERS = ["tack, tack_memory", "tack_memory, tack"]

START = """
    import sys, warnings
    warned = []
    warnings.showwarning = lambda message, category, filename, line, *rest: warned.append((category.__name__, str(message), filename, line))
"""


class Stage:
    """A folder with a package tack in it, and scripts that run beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def copy(self, shape: str) -> Path:
        """One of the mini-hosts, to be changed."""
        return Path(shutil.copytree(STAND_INS[shape], self.folder / "tack", ignore=shutil.ignore_patterns("__pycache__")))

    def write(self, text: str) -> None:
        (self.folder / "tack.py").write_text(dedent(text))

    def said(self, script: str, **environment: str) -> list[str]:
        """What a script prints that ends well."""
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        done = run_python(dedent(START) + dedent(script), **{"PYTHONPATH": path, "TACK_MEMORY_AUTOINSTALL": "1", **environment})
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture(params=STAND_INS)
def shape(request: pytest.FixtureRequest, stage: Stage) -> str:
    """A generation of Tack; its mini-host is on the stage."""
    (stage.folder / "tack").symlink_to(STAND_INS[request.param], target_is_directory=True)
    return str(request.param)


ADDED = ["get_memory_budget", "memory_budget", "memory_info", "memory_peak", "memory_report", "reset_peak_memory", "set_memory_budget"]


@pytest.mark.parametrize("order", ORDERS)
def test_the_order_of_the_imports_does_not_matter(stage: Stage, shape: str, order: str) -> None:
    script = f"""
        import {order}
        print(*sorted(name for name in vars(tack) if "memory" in name and name != "DeviceMemoryError"))
        from tack_memory import hosts
        print(hosts.plugged("tack").adapter.shape, warned)
        tack_memory.install()  # changes nothing
        tack_memory.install(tack)
        print(hosts.plugged("tack").adapter.shape)
    """
    assert stage.said(script) == [" ".join(ADDED), f"{shape} []", shape]


def test_arrays_are_counted_and_spilled(stage: Stage) -> None:
    """All that a program does is to import both."""
    stage.copy("array generation")
    script = """
        import tack_memory, tack
        from tack_memory.hosts import sim_library
        tack_memory.memory_info("sim:0")
        tack.init("cuda:0", library=sim_library("sim:0"), host_readable=True)
        tack.set_memory_budget("2 MiB")
        arrays = [tack.full(2**20, seed, "u1") for seed in range(4)]
        info = tack.memory_info()
        print(info.device, info.in_use >> 20, info.spilled >> 20, [int(array[7]) for array in arrays])
    """
    assert stage.said(script) == ["sim:0 2 2 [0, 1, 2, 3]"]


@pytest.mark.parametrize("order", ORDERS)
def test_the_switch_turns_it_off(stage: Stage, shape: str, order: str) -> None:
    script = f"""
        import {order}
        from tack_memory import hosts
        print(hosts.plugged("tack"), hasattr(tack, "memory_info"), warned)
        tack_memory.install()
        print(hosts.plugged("tack").adapter.shape)
    """
    assert stage.said(script, TACK_MEMORY_AUTOINSTALL="0") == ["None False []", shape]


def test_waiting_for_tack_imports_nothing_of_the_adapters(stage: Stage) -> None:
    script = """
        import importlib.util
        before = set(sys.modules)
        import tack_memory, email
        print(sorted(name for name in set(sys.modules) - before if "numpy" in name or "inspect" in name or ".hosts" in name))
        print(len([finder for finder in sys.meta_path if type(finder).__module__ == "tack_memory._imports"]))
    """
    assert stage.said(script) == ["[]", "1"]


@pytest.mark.parametrize("order", ORDERS)
def test_another_package_of_that_name_is_left_alone(stage: Stage, order: str) -> None:
    """PyPI may have one. It gets no warning, which its users could do nothing about."""
    stage.write("import sys\ndef sharpen(): ...\nsys.own = dict(globals())")
    script = f"""
        import logging
        logging.basicConfig(level="DEBUG", stream=sys.stdout, format="%(levelname)s %(message)s")
        import {order}
        print(warned, {{name: value for name, value in vars(tack).items() if name not in sys.own}})
    """
    logged, told = stage.said(script)
    assert logged == f"DEBUG the module tack ({stage.folder / 'tack.py'}) is not Tack: left alone"
    assert told == "[] {}"


UNKNOWN = {  # a file of the host, what is changed there, the seam that is missing then
    "array generation": ("__init__.py", "del DeviceMemoryError", "tack.DeviceMemoryError"),
    "field generation": ("lang/dlpack.py", "del _prevent_gc", "tack.lang.dlpack:_prevent_gc"),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("generation", STAND_INS)
def test_a_tack_with_a_seam_missing_is_left_alone_with_one_warning(stage: Stage, generation: str, order: str) -> None:
    place = stage.copy(generation)
    file, change, seam = UNKNOWN[generation]
    (place / file).write_text((place / file).read_text() + f"\n{change}\n")
    (place / "__init__.py").write_text((place / "__init__.py").read_text() + "\nimport sys\nsys.own = set(globals())\n")
    (stage.folder / "user.py").write_text(f"import {order}\nimport {order}\n")
    script = """
        import user, tack, tack_memory, importlib
        importlib.import_module("tack")
        print(len(warned), *warned[0])
        added = {name for name in set(vars(tack)) - sys.own if vars(tack)[name] is not sys.modules.get("tack." + name)}
        print(added, sorted(name for name in vars(tack) if "memory_" in name))
        try:
            tack_memory.install(tack)
        except tack_memory.MissingSeamError as error:
            print(error)
    """
    warning, touched, raised = stage.said(script)
    assert warning.startswith("1 RuntimeWarning tack is not a host that tack_memory knows") and warning.endswith(f"{stage.folder / 'user.py'} 1")
    assert seam in warning and "TACK_MEMORY_AUTOINSTALL=0" in warning
    assert touched == "set() []"
    assert seam in raised


def test_where_warnings_are_errors_the_import_still_succeeds(stage: Stage) -> None:
    stage.write("def kernel(): ...\nready = True")
    script = """
        import logging
        logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
        import tack_memory, tack
        print(tack.ready)
    """
    told, ready = stage.said(script, PYTHONWARNINGS="error")
    assert told.startswith("WARNING tack is not a host that tack_memory knows") and ready == "True"


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("known", [True, False])
def test_a_tack_that_counts_by_itself_is_left_alone(stage: Stage, order: str, known: bool) -> None:
    """Also where its other seams are not known any more: it is a later Tack, then."""
    if known:
        place = stage.copy("field generation") / "__init__.py"
        place.write_text(place.read_text() + "\ndef memory_info(): ...\n")
    else:
        stage.write("def kernel(): ...\ndef memory_info(): ...")
    script = f"""
        import logging
        logging.basicConfig(level="DEBUG", stream=sys.stdout, format="%(levelname)s %(message)s")
        import {order}
        print(warned, sorted(name for name in vars(tack) if "memory_" in name))
        try:
            tack_memory.install(tack)
        except tack_memory.HostHasMemoryError as error:
            print(error)
    """
    own = "tack has memory_info of its own: it is never given a second spiller"
    said = stage.said(script)
    assert [line for line in said if "opened" not in line] == [f"DEBUG left alone: {own}", "[] ['memory_info']", own]


def test_uninstall_leaves_no_trace_and_is_not_undone_by_another_import(stage: Stage, shape: str) -> None:
    script = """
        import importlib
        import tack
        def attributes():
            found = {}
            for name, module in sys.modules.items():
                if name.partition(".")[0] == "tack":
                    for key, value in vars(module).items():
                        found[name, key] = value
                        if isinstance(value, type) and value.__module__.partition(".")[0] == "tack":
                            found.update({(name + "." + key, own): part for own, part in vars(value).items()})
            return found
        from tack_memory.hosts import _array_seams, _field_seams
        _array_seams.find(tack), _field_seams.find(tack)  # imports what the adapters look at
        tack_memory = sys.modules["tack_memory"]
        print(hasattr(tack, "memory_info"))
        tack_memory.uninstall()
        without = attributes()
        tack_memory.install()
        changed = attributes()
        tack_memory.uninstall(tack)
        again = attributes()
        print(without.keys() == again.keys(), all(without[key] is again[key] for key in without), len(changed) > len(again))
        importlib.reload(tack)
        print(hasattr(tack, "memory_info"))
        for name in [name for name in sys.modules if name.partition(".")[0] == "tack"]:
            del sys.modules[name]
        import tack as another
        print(another is tack, hasattr(another, "memory_info"))
    """
    assert stage.said(script) == ["True", "True True True", "False", "False False"]


def test_uninstall_before_tack_comes(stage: Stage, shape: str) -> None:
    script = """
        import tack_memory
        before = "tack" in sys.modules
        tack_memory.uninstall()
        try:
            tack_memory.uninstall()
        except ValueError as error:
            print(error, before, "tack" in sys.modules)
        import tack
        print(hasattr(tack, "memory_info"))
        tack_memory.install(tack)
        print(hasattr(tack, "memory_info"))
    """
    assert stage.said(script) == ["tack is not plugged in: it is not even imported False False", "False", "True"]


def test_an_import_that_fails_at_first(stage: Stage, shape: str) -> None:
    """What a framework lacks is often installed, or put on the path, and the import tried again."""
    real = (stage.folder / "tack").resolve()
    (stage.folder / "tack").unlink()
    shutil.copytree(real, stage.folder / "tack", ignore=shutil.ignore_patterns("__pycache__"))
    start = stage.folder / "tack" / "__init__.py"
    start.write_text("import something_else\n" + start.read_text())
    script = """
        import tack_memory
        try:
            import tack
        except ModuleNotFoundError as error:
            print(error)
        sys.modules["something_else"] = sys
        import tack
        print(hasattr(tack, "memory_info"))
    """
    assert stage.said(script) == ["No module named 'something_else'", "True"]


def test_a_tack_that_imports_us_itself(stage: Stage, shape: str) -> None:
    (stage.folder / "tack").unlink()
    start = stage.copy(shape) / "__init__.py"
    start.write_text("import tack_memory\n" + start.read_text())
    script = """
        import tack
        print(hasattr(tack, "memory_info"), warned)
    """
    assert stage.said(script) == ["True []"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_backend_that_comes_later_and_lacks_a_seam(stage: Stage, order: str) -> None:
    """The import of the backend goes on; the warning names the seam, once. The other backends are plugged in."""
    backend = stage.copy("field generation") / "runtime" / "cuda_backend.py"
    backend.write_text(backend.read_text() + "\ndel CUDABuffer.__del__\n")
    (stage.folder / "user.py").write_text("import tack.runtime.cuda_backend\nimport tack.runtime.cuda_backend\n")
    script = f"""
        import {order}
        print(warned)
        import user
        (category, message, filename, line), = warned
        print(category, "CUDABuffer.__del__" in message, filename == user.__file__, line)
        tack.init("cpu")
        field = tack.zeros(tack.f64, 1000)
        print(tack.memory_info().in_use)
    """
    assert stage.said(script) == ["[]", "RuntimeWarning True True 1", "8000"]


def test_an_explicit_install_says_how(stage: Stage) -> None:
    """Tack was plugged in by itself, without simulate: the first explicit install may still have it, and a second must agree with it."""
    stage.copy("field generation")
    script = """
        import tack, tack_memory
        tack.init("cpu")
        old = tack.full(tack.f64, 1000, 3.0)
        print(tack.memory_info().device)
        tack_memory.install(tack, simulate="64 KiB")
        print(tack.memory_info().device, tack.get_memory_budget(), float(old.to_numpy().sum()))
        tack_memory.install(tack, simulate=65536)
        tack_memory.install(tack)
        for other in ({"simulate": 0}, {"simulate_capacity": "1 MiB"}, {"simulate": "64 KiB", "simulate_addresses": "reuse"}):
            try:
                tack_memory.install(tack, **other)
            except ValueError as error:
                print(error)
        del old
        tack_memory.uninstall()
        tack_memory.install(tack, simulate_capacity="1 MiB", simulate_addresses="reuse")
        print(tack.memory_info().device_total, tack.get_memory_budget())
    """
    plugged = "tack is plugged in already, with simulate (soft budget 64 KiB, addresses used once); to have {}, uninstall it first"
    assert stage.said(script) == [
        "cpu",
        "sim-cpu:0 65536 3000.0",
        plugged.format("soft budget 0 B, addresses used once"),
        plugged.format("capacity 1 MiB, addresses used once"),
        plugged.format("soft budget 64 KiB, addresses used again at once"),
        "1048576 None",
    ]


def test_an_explicit_install_without_simulate_settles_it(stage: Stage) -> None:
    stage.copy("field generation")
    script = """
        import tack, tack_memory
        tack_memory.install(tack)
        try:
            tack_memory.install(tack, simulate="64 KiB")
        except ValueError as error:
            print(error)
    """
    assert stage.said(script) == ["tack is plugged in already, without simulate; to have soft budget 64 KiB, addresses used once, uninstall it first"]


def test_simulate_that_cannot_be_leaves_tack_plugged_in_as_it_was(stage: Stage) -> None:
    stage.copy("field generation")
    script = """
        import tack, tack_memory
        tack.init("cpu")
        kept = tack_memory.hosts._simulate
        def broken(*arguments):
            raise MemoryError("no address space")
        _set_up, kept._set_up = kept._set_up, broken
        field = tack.full(tack.f64, 1000, 3.0)
        try:
            tack_memory.install(tack, simulate=0)
        except MemoryError as error:
            print(error, tack.memory_info().device, tack.memory_info().in_use)
        kept._set_up = _set_up
        tack_memory.install(tack, simulate=0)
        print(tack.memory_info().device, float(field.to_numpy().sum()))
    """
    script = script.replace("import tack, tack_memory\n", "import tack, tack_memory, tack_memory.hosts._simulate\n")
    assert stage.said(script) == ["no address space cpu 8000", "sim-cpu:0 3000.0"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("simulate='2G'", "ValueError: '2G' can be read in two ways"),
        ("simulate=0.5", "TypeError: a size cannot be the float 0.5"),
        ("simulate=1, simulate_capacity=1", "ValueError: give either simulate"),
        ("simulate_capacity=0", "ValueError: simulate_capacity cannot be 0"),
        ("simulate=1, simulate_addresses='old'", "ValueError: the addresses of a simulated device are one of fresh, reuse, not 'old'"),
        ("simulate_addresses='reuse'", "ValueError: give either simulate"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_changes(stage: Stage, arguments: str, error: str) -> None:
    stage.copy("field generation")
    script = f"""
        import tack, tack_memory
        from tack_memory import hosts
        before = hosts.plugged("tack")
        try:
            tack_memory.install(tack, {arguments})
        except Exception as error:
            print(type(error).__name__ + ":", error)
        print(hosts.plugged("tack") is before)
    """
    told, same = stage.said(script)
    assert told.startswith(error) and same == "True"


def popped(*, with_submodules: bool) -> str:
    """A line that takes Tack out of `sys.modules`; it stays as `old`."""
    which = 'name.partition(".")[0] == "tack"' if with_submodules else 'name == "tack"'
    return f"old = tack; [sys.modules.pop(name) for name in list(sys.modules) if {which}]"


@pytest.mark.parametrize("everything", [True, False], ids=["with submodules", "alone"])
def test_a_tack_that_is_imported_anew_is_plugged_in(stage: Stage, shape: str, everything: bool) -> None:
    """Notebooks do that, to have a changed Tack. The one before is unplugged."""
    script = f"""
        import tack_memory, tack
        from tack_memory import hosts
        {popped(with_submodules=everything)}
        import tack
        print(tack is old, hasattr(old, "memory_info"), hasattr(tack, "memory_info"), warned)
        print(hosts.plugged("tack").adapter.module is tack)
        import importlib
        importlib.reload(tack)
        print(hosts.plugged("tack").adapter.module is tack)
        tack_memory.uninstall()
        del sys.modules["tack"]
        import tack
        print(hasattr(tack, "memory_info"), hosts.plugged("tack"))
    """
    assert stage.said(script) == ["False False True []", "True", "True", "False None"]


def test_a_tack_that_is_imported_anew_computes_as_the_one_before(stage: Stage) -> None:
    stage.copy("field generation")
    script = f"""
        import tack, tack_memory
        tack.init("cpu")
        tack_memory.install(tack, simulate="64 KiB")
        field = tack.full(tack.f64, 1000, 3.0)
        {popped(with_submodules=False)}
        import tack
        print(tack.memory_info().device, tack.get_memory_budget(), tack.memory_info().footprint, float(field.to_numpy().sum()))
        tack_memory.uninstall(tack)
        print(float(field.to_numpy().sum()))
    """
    assert stage.said(script) == ["sim-cpu:0 65536 8000 3000.0", "3000.0"]


def test_a_tack_that_is_imported_anew_while_the_one_before_must_stay_plugged_in(stage: Stage) -> None:
    stage.copy("field generation")
    script = f"""
        import tack, tack_memory
        tack.init("cpu")
        tack_memory.install(tack, simulate="64 KiB")
        field = tack.full(tack.f64, 1000, 3.0)
        values = field._buffer._data
        {popped(with_submodules=True)}
        import tack
        print(hasattr(tack, "memory_info"), hasattr(old, "memory_info"))
        (_, message, _, _), = warned
        print("imported anew" in message and "8000 bytes" in message)
        del values
        tack_memory.install(tack)
        print(hasattr(tack, "memory_info"), hasattr(old, "memory_info"), float(field.to_numpy().sum()))
    """
    assert stage.said(script) == ["False True", "True", "True False 3000.0"]


def test_uninstall_finds_a_tack_that_is_in_sys_modules_no_more(stage: Stage, shape: str) -> None:
    script = f"""
        import tack_memory, tack
        from tack_memory import hosts
        {popped(with_submodules=True)}
        tack_memory.uninstall()
        print(hasattr(old, "memory_info"), hosts.plugged("tack"), "tack" in sys.modules)
    """
    assert stage.said(script) == ["False None False"]
