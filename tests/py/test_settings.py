"""The switches of the environment: syntax at import, values at the first use of a device."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import run_python

from tack_memory._settings import BUILD_AND_TEST_VARIABLES, SWITCHES, Settings, parse_device_name, unknown_switches


def test_nothing_set_means_the_defaults() -> None:
    settings = Settings({})
    assert settings.autoinstall and not settings.check
    assert settings.simulate_addresses == "fresh"
    assert settings.log is settings.budget is settings.host_limit is settings.sim is None
    assert settings.budgets == {}


def test_an_empty_variable_counts_as_not_set() -> None:
    settings = Settings({name: " " for name in SWITCHES})
    assert settings.autoinstall and settings.budget is None and settings.sim is None


@pytest.mark.parametrize(
    ("text", "everyone", "named"),
    [
        ("8GiB", "8GiB", {}),
        (" 80% ", "80%", {}),
        ("cuda:0=8GiB,cuda:1=50%", None, {"cuda:0": "8GiB", "cuda:1": "50%"}),
        ("1 GiB, cuda:1 = 50 %", "1 GiB", {"cuda:1": "50 %"}),
        ("cuda=1GB", None, {"cuda": "1GB"}),
        ("1073741824", "1073741824", {}),
    ],
)
def test_a_budget_is_for_each_device_or_for_some(text: str, everyone: str | None, named: dict[str, str]) -> None:
    settings = Settings({"TACK_MEMORY_BUDGET": text})
    assert (settings.budget, settings.budgets) == (everyone, named)


def test_a_named_device_wins_over_its_kind_and_over_every_device() -> None:
    settings = Settings({"TACK_MEMORY_BUDGET": "1GB,cuda=2GB,cuda:1=3GB"})
    assert settings.budget_of("hip:0") == ("1GB", False)
    assert settings.budget_of("cuda:0") == ("2GB", True)
    assert settings.budget_of("cuda:1") == ("3GB", True)


WRONG = [
    ("TACK_MEMORY_BUDGET", "2G"),
    ("TACK_MEMORY_BUDGET", "8 GiBs"),
    ("TACK_MEMORY_BUDGET", "0"),
    ("TACK_MEMORY_BUDGET", "0%"),
    ("TACK_MEMORY_BUDGET", "0.0 GiB"),
    ("TACK_MEMORY_BUDGET", "-1GB"),
    ("TACK_MEMORY_BUDGET", "gpu:0=1GB"),
    ("TACK_MEMORY_BUDGET", "cuda:x=1GB"),
    ("TACK_MEMORY_BUDGET", "cuda:0=1GB,cuda:0=2GB"),
    ("TACK_MEMORY_BUDGET", "1GB,2GB"),
    ("TACK_MEMORY_BUDGET", "1GB,"),
    ("TACK_MEMORY_BUDGET", "=1GB"),
    ("TACK_MEMORY_BUDGET", "150%"),
    ("TACK_MEMORY_BUDGET", "cuda:0=101%"),
    ("TACK_MEMORY_AUTOINSTALL", "maybe"),
    ("TACK_MEMORY_CHECK", "2"),
    ("TACK_MEMORY_LOG", "loud"),
    ("TACK_MEMORY_HOST_LIMIT", "80%"),
    ("TACK_MEMORY_HOST_LIMIT", "150%"),
    ("TACK_MEMORY_HOST_LIMIT", "much"),
    ("TACK_MEMORY_SIM", "80%"),
    ("TACK_MEMORY_SIM", "0"),
    ("TACK_MEMORY_SIM", "1"),
    ("TACK_MEMORY_SIM", "64 MiB,1023 KiB"),
    ("TACK_MEMORY_POOLS", "some"),
    ("TACK_MEMORY_SIMULATE_ADDRESSES", "stale"),
    ("TACK_MEMORY_SIM", "64 MiB,,64 MiB"),
    ("TACK_MEMORY_SIM", "64 MiB,2G"),
]


@pytest.mark.parametrize(("name", "text"), WRONG)
def test_a_wrong_form_is_an_error_that_names_the_variable(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=name):
        Settings({name: text})


@pytest.mark.parametrize(("words", "on"), [(("1", "true", "yes", "on", "YES", " On "), True), (("0", "false", "no", "off", "No", "OFF "), False)])
@pytest.mark.parametrize("name", ["AUTOINSTALL", "CHECK", "POOLS"])
def test_a_variable_that_is_on_or_off_may_be_written_in_several_ways(name: str, words: tuple[str, ...], on: bool) -> None:
    for word in words:
        assert getattr(Settings({f"TACK_MEMORY_{name}": word}), name.lower()) is on
    with pytest.raises(ValueError, match=r"must be 1, true, yes, on .*or 0, false, no, off"):
        Settings({f"TACK_MEMORY_{name}": "perhaps"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TACK_MEMORY_POOL", "TACK_MEMORY_POOLS"),
        ("TACK_MEMORY_BUGDET", "TACK_MEMORY_BUDGET"),
        ("TACK_MEMORY_AUTO_INSTALL", "TACK_MEMORY_AUTOINSTALL"),
        ("TACK_MEMORY_LIMIT", "TACK_MEMORY_HOST_LIMIT"),
        ("TACK_MEMORY_HIP_LIB", "TACK_MEMORY_HIP_LIBRARY"),
        ("TACK_MEMORY_log", "TACK_MEMORY_LOG"),
        ("TACK_MEMORY_XYZZY", None),
        ("TACK_MEMORY_", None),
    ],
)
def test_a_name_that_nobody_reads_is_told_with_the_one_that_was_meant(name: str, meant: str | None) -> None:
    assert unknown_switches({"HOME": "/", name: "1", "TACK_MEMORY_SIM": "1 MiB", "TACK_MEMORYX": "1"}) == {name: meant}


def test_every_variable_of_the_sources_is_known() -> None:
    """The two lists are all there is: a variable that is new in any of the sources, the build or the tests must be in one of them."""
    root = Path(__file__).resolve().parents[2]
    known = {*SWITCHES, *BUILD_AND_TEST_VARIABLES}
    found = set()
    for folder in ("python", "gomem", "backends", "bindings", "buildsystem", "bench", "tests/go", "tests/tack", "tests/gpu", "tests/clients", "examples"):
        for file in (root / folder).rglob("*"):
            if file.suffix in (".py", ".go", ".c", ".h", ".mk", "") and file.is_file():
                found |= set(re.findall(r"\bTACK_MEMORY_[A-Z_]*[A-Z]\b", file.read_text(errors="ignore")))
    for file in (
        root / "Makefile",
        *(root / "tests" / "py").glob("conftest.py"),
        root / "tests" / "py" / "support.py",
        *(root / "tests" / "py" / "numpy").glob("*.py"),
    ):
        found |= set(re.findall(r"\bTACK_MEMORY_[A-Z_]*[A-Z]\b", file.read_text()))
    found -= set(re.findall(r"#define (TACK_MEMORY_\w+)", (root / "python" / "tack_memory" / "include" / "tack_memory.h").read_text()))  # names in C
    assert found <= known, sorted(found - known)
    assert known - found <= {name for name in BUILD_AND_TEST_VARIABLES if name.endswith("_SEED")}  # of a test of its own


def test_an_unknown_variable_is_one_warning_at_import_and_a_line_of_the_command_line() -> None:
    script = """
        import sys, tack_memory, tack_memory.hosts
        print("difflib" in sys.modules)
    """
    quiet = run_python(script)
    assert (quiet.stdout, quiet.stderr) == ("False\n", "")
    told = "TACK_MEMORY_BUGDET is no setting of tack_memory, and does nothing; did you mean TACK_MEMORY_BUDGET?"
    done = run_python(script, TACK_MEMORY_BUGDET="1 GiB", TACK_MEMORY_TEST_DEVICES="", TACK_MEMORY_FETCH_HEADERS="1")
    assert (done.returncode, done.stderr.count("RuntimeWarning")) == (0, 1) and f"<string>:2: RuntimeWarning: {told}" in done.stderr
    strict = run_python("import warnings; warnings.simplefilter('error'); import tack_memory", TACK_MEMORY_BUGDET="1 GiB")
    assert strict.returncode == 0 and told in strict.stderr, "an import must not fail by it"

    environment = {**os.environ, "TACK_MEMORY_BUGDET": "1 GiB"}
    for command, code in (["info", "cpu"], 0), (["doctor", "--json"], 0):
        line = subprocess.run([sys.executable, "-m", "tack_memory", *command], env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (line.returncode, line.stderr) == (code, f"tack_memory: {told}\n")
    assert json.loads(line.stdout)["unknown_switches"] == {"TACK_MEMORY_BUGDET": "TACK_MEMORY_BUDGET"}


def test_the_syntax_is_checked_at_import() -> None:
    done = run_python("import tack_memory", TACK_MEMORY_BUDGET="8 Gib?")
    assert done.returncode != 0
    assert "ValueError: TACK_MEMORY_BUDGET=8 Gib?" in done.stderr


def test_what_advises_a_form_that_is_refused_there_is_no_advice() -> None:
    for name in ("TACK_MEMORY_HOST_LIMIT", "TACK_MEMORY_SIM"):
        with pytest.raises(ValueError, match=name) as refused:
            Settings({name: "bogus"})
        advised = [word for word in str(refused.value).replace(";", "").split('"')[1::2]]
        assert advised
        for text in advised:
            Settings({name: text})


def test_a_budget_of_the_environment_counts_from_the_first_use_and_a_call_overrides_it() -> None:
    done = run_python(
        """
        import tack_memory as tm
        print(tm.get_memory_budget("sim:0"), tm.get_memory_budget("sim:1"), tm.memory_info("sim:0").strict)
        print(tm.set_memory_budget("3 MiB", "sim:0"), tm.get_memory_budget("sim:0"))
        print(tm.set_memory_budget(None, "sim:1"), tm.get_memory_budget("sim:1"))
        """,
        TACK_MEMORY_BUDGET="4 MiB,sim:1=25%",
    )
    assert done.stdout.split() == ["4194304", "16777216", "False", "4194304", "3145728", "16777216", "None"], done.stderr


@pytest.mark.parametrize("name", ["sim:0", "sim-cuda:0"])
def test_a_device_may_be_named_either_way(name: str) -> None:
    done = run_python('import tack_memory as tm; print(tm.get_memory_budget("sim:0"))', TACK_MEMORY_BUDGET=f"{name}=3 MiB")
    assert (done.stdout, done.stderr) == (f"{3 << 20}\n", "")


def test_a_budget_of_a_device_that_is_not_there_is_told_at_the_first_use() -> None:
    script = "import tack_memory as tm; " + "; ".join(f'tm.memory_info("{name}")' for name in ("sim:1", "cpu", "sim-hip:0"))
    done = run_python(script, TACK_MEMORY_BUDGET="sim:1=1MiB,sim:5=1MiB,cuda:77=8GiB,cuda=1GiB,cpu=1GiB,sim-hip:0=8 MiB,sim-hip:2=1GiB")
    lines = sorted(line for line in done.stderr.splitlines() if "is for nothing" in line)
    assert [line.partition(" is for nothing: ")[0] for line in lines] == [
        f"TACK_MEMORY_BUDGET: the budget of {name}" for name in ("cuda:77", "sim-hip:2", "sim:5")
    ]
    assert lines[2].endswith("there are only sim:0, sim:1") and done.returncode == 0
    assert "is for nothing" not in run_python(script, TACK_MEMORY_BUDGET="8GiB,cuda=8GiB,sim:1=1MiB").stderr


def test_a_budget_of_the_environment_holds_for_the_first_allocation() -> None:
    done = run_python(
        """
        import tack_memory as tm
        buffers = [tm.allocate("1 MiB", "sim:0") for _ in range(4)]
        info = tm.memory_info("sim:0")
        print(info.in_use, info.spilled, info.over_budget_count)
        """,
        TACK_MEMORY_BUDGET="2 MiB",
    )
    assert done.stdout.split() == ["2097152", "2097152", "0"], done.stderr


def test_the_simulated_devices_have_the_capacities_that_were_asked_for() -> None:
    done = run_python(
        "import tack_memory as tm; print([tm.memory_info(name).device_total for name in tm.devices() if name.startswith('sim')])",
        TACK_MEMORY_SIM="16 MiB, 32 MiB, 48 MiB",
    )
    assert done.stdout.strip() == str([16 << 20, 32 << 20, 48 << 20]), done.stderr


@pytest.mark.parametrize("kind", ["sim", "sim-hip"])
def test_memory_pools_can_be_switched_off(kind: str) -> None:
    """Everything works without them: allocation, a spill under a budget, the way back, and the memory comes back."""
    script = """
        import tack_memory as tm
        from support import SoftDriver, filled, contents, pattern
        first, second = filled(1 << 20, "sim:0", 1), filled(1 << 20, "sim:0", 2)
        print(contents(first) == pattern(1 << 20, 1), contents(second) == pattern(1 << 20, 2), tm.memory_info("sim:0").spilled)
        del first, second
        tm.synchronize("sim:0")
        print(tm.memory_info("sim:0").in_use)
        driver = SoftDriver()
        print([driver.calls(name) > 0 for name in CALLS])
    """
    plain, pooled = {"sim": ("cuMemAlloc_v2", "cuMemAllocFromPoolAsync"), "sim-hip": ("hipMalloc", "hipMallocFromPoolAsync")}[kind]
    for value, used in (("0", [True, False]), ("1", [False, True]), ("", [False, True])):
        done = run_python(script.replace("CALLS", repr([plain, pooled])), simulated=kind, TACK_MEMORY_POOLS=value, TACK_MEMORY_BUDGET="1536 KiB")
        assert done.stdout.splitlines() == ["True True 1048576", "0", str(used)], done.stderr


def test_the_limit_of_host_copies_holds() -> None:
    done = run_python(
        """
        import tack_memory as tm
        buffers = [tm.allocate("4 MiB", "sim:0") for _ in range(4)]
        freed = 0
        try:
            for buffer in buffers:
                freed += buffer.spill()
        except tm.DeviceMemoryError as error:
            print(error.reason, tm.memory_info("sim:0").spilled == freed, freed <= 8 << 20, sum(not b.is_spilled for b in buffers) >= 2)
        """,
        TACK_MEMORY_HOST_LIMIT="8 MiB",
    )
    assert done.stdout.split() == ["host", "True", "True", "True"], done.stderr


def test_the_log_goes_to_stderr_at_the_level_asked_for() -> None:
    script = 'import tack_memory as tm; tm.memory_info("sim:0")'
    assert "tack_memory DEBUG: opened sim:0" in run_python(script, TACK_MEMORY_LOG="debug").stderr
    assert run_python(script, TACK_MEMORY_LOG="error").stderr == ""
    assert run_python(script).stderr == ""
    with_handlers = "import logging; logging.basicConfig(level=10)" + "\n" + script
    assert run_python(with_handlers, TACK_MEMORY_LOG="debug").stderr.count("opened sim:0") == 1, "each line once"
    assert run_python(with_handlers).stderr.count("opened sim:0") == 1, "a program's own handlers get it"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("cuda:0", ("cuda", 0)),
        ("level_zero:12", ("level_zero", 12)),
        ("cpu", ("cpu", None)),
        ("cuda", ("cuda", None)),
        ("CUDA:0", None),
        ("cuda:", None),
        ("cuda:01", None),
        ("cuda:-1", None),
        ("cuda:0 ", None),
        ("cuda:٣", None),
        ("cuda:99999", None),
        ("gpu:0", None),
        ("", None),
    ],
)
def test_the_form_of_a_device_name(text: str, parsed: tuple[str, int | None] | None) -> None:
    assert parse_device_name(text) == parsed
