"""`pytest --device-memory-simulate "64 KiB"` runs a project's own tests on the simulated device, and says what happened there.

Each test runs pytest on a small project of its own, where tests/py/hosts/fieldhost is called tack.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from pytest_project import Project
from support import run_python

FIELDHOST = Path(__file__).parent / "hosts" / "fieldhost"

CONFTEST = """
    import tack

    tack.init("cpu")
    older = tack.full(tack.f64, 8192, 5.0)  # 64 KiB
"""

TEST = """
    import tack

    @tack.kernel
    def scale(x, out, factor):
        out[:] = x * factor

    def test_fields_that_do_not_fit():
        fields = [tack.full(tack.f64, 8192, float(i)) for i in range(6)]
        out = tack.zeros(tack.f64, 8192)
        for i, field in enumerate(fields):
            scale(field, out, 2.0)
            assert (out.to_numpy() == 2 * i).all()
"""

FIGURES = """
    import json, os, tack

    def test_nothing_but_write_the_figures():
        tack.reset_peak_memory()
        info = tack.memory_info()
        kept = {name: getattr(info, name) for name in ("spill_count", "restore_count", "spilled_bytes", "restored_bytes", "budget", "device")}
        from tack_memory import hosts
        kept["addresses"] = hosts.plugged("tack").simulation.addresses
        with open(f"figures.{os.getpid()}.json", "w") as file:
            json.dump(kept, file)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    (tmp_path / "tack").symlink_to(FIELDHOST, target_is_directory=True)
    return made


@pytest.fixture
def spilling(project: Project) -> Project:
    """A project whose fields do not fit, and whose last test writes what the device says."""
    project.write("conftest.py", CONFTEST + '    assert tack.memory_info().device == "sim-cpu:0"\n')
    project.write("test_a.py", TEST)
    project.write("test_z.py", FIGURES)
    return project


def line(output: str, word: str) -> str:
    """The one line about device memory with this word."""
    (found,) = [one for one in output.splitlines() if one.startswith("device memory: ") and word in one]
    return found


def test_a_projects_tests_run_on_the_simulated_device(spilling: Project) -> None:
    """Its conftest.py imports Tack. Autoinstall has no say here: it is on in this test and off in the others."""
    output = spilling.passes("--device-memory-simulate", "64 KiB", TACK_MEMORY_AUTOINSTALL="1")
    (told,) = spilling.figures()
    assert (told["device"], told["budget"], told["addresses"]) == ("sim-cpu:0", 65536, "fresh")
    assert int(told["spill_count"]) >= 7 and int(told["restore_count"]) >= 6
    assert line(output, "is simulated") == "device memory: Tack's CPU backend is simulated, soft budget 64 KiB, addresses used once"
    kib = {name: int(told[f"{name}_bytes"]) // 1024 for name in ("spilled", "restored")}
    assert line(output, "spills") == (
        f"device memory: {told['spill_count']} spills ({kib['spilled']} KiB), {told['restore_count']} restores ({kib['restored']} KiB), "
        "peak 128 KiB under a soft budget of 64 KiB"  # one launch has two fields; that a test reset the peak does not matter
    )


def test_a_budget_of_nothing(spilling: Project) -> None:
    output = spilling.passes("--device-memory-simulate=0")
    assert spilling.figures()[0]["budget"] == 0 and "soft budget 0 B, addresses used once" in output


def test_figures_of_all_workers_are_added(spilling: Project) -> None:
    spilling.write("test_b.py", TEST)
    spilling.write("test_y.py", FIGURES)
    alone = spilling.passes("--device-memory-simulate", "64KiB", "test_a.py", "test_z.py", TACK_MEMORY_SIMULATE_ADDRESSES="reuse")
    (told,) = spilling.figures()
    for file in spilling.folder.glob("figures.*.json"):
        file.unlink()
    output = spilling.passes("--device-memory-simulate", "64KiB", "--device-memory-simulate-addresses=reuse", "-n", "2", "--dist", "loadfile")
    summary = line(output, "spills")
    assert summary.endswith("peak 128 KiB in one of 2 processes under a soft budget of 64 KiB")
    spills, restores = (int(part.split()[0]) for part in summary.removeprefix("device memory: ").split(", ")[:2])
    # Each process made conftest.py's field; each file of tests ran in one of them.
    assert restores == 2 * int(told["restore_count"]) and 2 * int(told["spill_count"]) - 2 <= spills <= 2 * int(told["spill_count"])
    assert line(output, "is simulated") == line(alone, "is simulated")
    assert line(alone, "is simulated").endswith("soft budget 64 KiB, addresses used again at once") and told["addresses"] == "reuse"


def test_a_worker_that_dies_is_reported(spilling: Project) -> None:
    spilling.write("test_b.py", "import os\ndef test_that_ends_the_process():\n    os._exit(3)\n")
    done = spilling.run("--device-memory-simulate", "64 KiB", "-n", "1", "--max-worker-restart", "0")
    assert done.returncode == 1
    assert "1 of the workers ended without telling theirs" in done.stdout


def test_the_configuration_file_may_say_it_and_the_flag_wins(spilling: Project) -> None:
    spilling.write("pytest.ini", "[pytest]\naddopts = --strict-config\ndevice_memory_simulate = 1 MiB\ndevice_memory_simulate_addresses = reuse\n")
    assert "soft budget 1 MiB, addresses used again at once" in spilling.passes()
    output = spilling.passes("--device-memory-simulate=64 KiB", "--device-memory-simulate-addresses=fresh")
    assert "soft budget 64 KiB, addresses used once" in output


WRONG = [
    (["--device-memory-simulate", "2G"], "--device-memory-simulate: '2G' can be read in two ways"),
    (["--device-memory-simulate="], "--device-memory-simulate: '' is not a size"),
    (["--device-memory-simulate=-1"], "--device-memory-simulate: a size cannot be negative"),
    (
        ["--device-memory-simulate=50%"],
        "--device-memory-simulate: '50%': a percentage is not possible here; write an int of bytes, or a string such as \"24 MiB\" ",
    ),
    (["--device-memory-simulate=lots"], '--device-memory-simulate: \'lots\' is not a size; write an int of bytes, or a string such as "24 MiB" or "1.5GB"\n'),
    (["-n", "2", "--device-memory-simulate=1.5"], "--device-memory-simulate: '1.5' is a fraction of a byte"),
    (["--override-ini=device_memory_simulate=2G"], "--device-memory-simulate: '2G' can be read in two ways"),
    (["--device-memory-simulate-addresses=old"], "invalid choice: 'old'"),
    (["--override-ini=device_memory_simulate_addresses=old"], "device_memory_simulate_addresses: must be fresh or reuse, not 'old'"),
    (["--device-memory-simulate-addresses=fresh"], "--device-memory-simulate-addresses is for a simulated device: give --device-memory-simulate, too"),
]


def test_wrong_options_are_a_usage_error(spilling: Project) -> None:
    """Of pytest's own kind, with the text of whoever reads sizes; no test runs."""
    runs = ["import sys, pytest"]
    for arguments, _ in WRONG:
        runs.append(f"print(int(pytest.main({arguments!r})), flush=True); print('=====', file=sys.stderr, flush=True)")
    done = subprocess.run([sys.executable, "-c", "\n".join(runs)], cwd=spilling.folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == [str(int(pytest.ExitCode.USAGE_ERROR))] * len(WRONG), done.stdout + done.stderr
    for (arguments, text), told in zip(WRONG, done.stderr.split("=====\n"), strict=False):
        assert text in told and "Traceback" not in told, arguments
    assert spilling.figures() == []


def test_a_project_that_never_imports_tack_is_told_so(project: Project) -> None:
    project.write("test_a.py", "def test_a(): ...\n")
    output = project.passes("--device-memory-simulate", "64 KiB")
    assert line(output, "nothing") == "device memory: nothing was simulated: nothing imported tack"


def test_a_tack_that_cannot_be_simulated_fails_its_tests(project: Project) -> None:
    """Never a run that looks simulated and is not."""
    (project.folder / "tack").unlink()
    project.write("tack.py", "def kernel(): ...\n")
    project.write("test_a.py", "import tack\ndef test_a(): ...\n")
    project.write("pytest.ini", "")  # warnings are shown
    for more in ([], ["-n", "2"]):
        done = project.run("--device-memory-simulate", "64 KiB", *more, TACK_MEMORY_AUTOINSTALL="1")
        assert done.returncode not in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
        assert "MissingSeamError: tack is not a host that tack_memory knows" in done.stdout
        assert "It is left alone" not in done.stdout + done.stderr
        assert line(done.stdout, "nothing was").startswith("device memory: nothing was simulated: MissingSeamError: tack is not a host")
    assert project.run().returncode == 0


def test_without_an_option_nothing_is_imported_or_said(project: Project) -> None:
    project.write("test_a.py", "import sys, tack\ndef test_a():\n    assert 'tack_memory' not in sys.modules and not hasattr(tack, 'memory_info')\n")
    assert "device memory" not in project.passes()


def test_loading_the_plug_in_imports_nothing_but_pytest() -> None:
    done = run_python(
        """
        import sys
        import pytest
        before = set(sys.modules)
        import _tack_memory_pytest
        print(sorted(set(sys.modules) - before))
        """
    )
    assert done.stdout.strip() == "['_tack_memory_pytest']", done.stderr


def test_it_can_be_left_out_and_asked_for_by_name(spilling: Project) -> None:
    done = spilling.run("--noconftest", "-p", "no:tack_memory", "--device-memory-simulate", "64 KiB")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "unrecognized arguments" in done.stderr
    for name in ("tack_memory", "_tack_memory_pytest"):
        output = spilling.passes("-p", name, "--device-memory-simulate", "64 KiB", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        assert "spills" in output
    assert "spills" in spilling.passes("-p", "tack_memory", "--device-memory-simulate", "64 KiB")


def test_a_conftest_may_bring_the_plug_in(spilling: Project) -> None:
    """Then it acts after conftest.py was loaded, and what that made is adopted."""
    spilling.write("conftest.py", 'pytest_plugins = ["_tack_memory_pytest"]\n' + dedent(CONFTEST))
    output = spilling.passes("--device-memory-simulate", "64 KiB", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert "spills" in output
    assert spilling.figures()[0]["device"] == "sim-cpu:0"


def test_two_runs_in_one_process(spilling: Project) -> None:
    """Each with the size that it asks for; and Tack is as it was after them."""
    spilling.write(
        "twice.py",
        """
        import pytest

        for size in ("128 KiB", "64 MiB"):
            assert pytest.main(["-q", "-p", "no:cacheprovider", "--device-memory-simulate", size]) == 0
        from tack_memory import hosts
        assert hosts.plugged("tack") is None
        print("as it was")
        """,
    )
    done = spilling.python("twice.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "under a soft budget of 128 KiB" in done.stdout
    assert "device memory: 0 spills (0 B), 0 restores (0 B)" in line(done.stdout, "under a soft budget of 64 MiB")
    assert done.stdout.endswith("as it was\n")


def test_what_is_simulated_otherwise_is_a_usage_error(spilling: Project) -> None:
    spilling.write(
        "otherwise.py",
        """
        import pytest, tack, tack_memory

        tack_memory.install(tack, simulate="1 MiB")
        print("ended with", int(pytest.main(["-q", "-p", "no:cacheprovider", "--device-memory-simulate", "64 KiB"])))
        print(tack_memory.get_memory_budget("sim-cpu:0"))
        """,
    )
    done = spilling.python("otherwise.py")
    assert done.stdout.endswith("ended with 4\n1048576\n"), done.stdout + done.stderr
    assert "plugged in already, with simulate (soft budget 1 MiB" in done.stderr and "Traceback" not in done.stderr


def test_help_lists_the_options(project: Project) -> None:
    output = project.passes("--help")
    for word in ("--device-memory-simulate=SIZE", "--device-memory-simulate-addresses={fresh,reuse}", "device_memory_simulate (string)"):
        assert word in output
