"""python -m tack_memory: info and doctor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import NO_GPU, run_python

from tack_memory._native import sim_library_path
from tack_memory._settings import SWITCHES

SOFTDRIVER = Path(__file__).resolve().parents[2] / "backends" / "softdriver"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tack_memory", *arguments], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def test_info_has_a_line_for_each_device() -> None:
    done = run("info", **NO_GPU)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["MemoryInfo(sim", "MemoryInfo(sim", "MemoryInfo(cpu"]


def test_info_for_programs() -> None:
    done = run("info", "sim:1", "--json")
    (found,) = json.loads(done.stdout)
    assert (found["device"], found["device_total"], found["device_free"], found["in_use"]) == ("sim:1", 64 << 20, None, 0)


def test_an_unknown_device_is_exit_code_2() -> None:
    done = run("info", "sim:9")
    assert done.returncode == 2 and "unknown device 'sim:9'" in done.stderr and "known devices: " in done.stderr and done.stdout == ""


def doctor(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    done = run("doctor", "--json", *arguments, **{**NO_GPU, **environment})
    return done.returncode, json.loads(done.stdout)


def vendor(told: dict[str, Any], kind: str) -> dict[str, Any]:
    (found,) = [one for one in told["vendors"] if one["kind"] == kind]
    return dict(found)


def device(told: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in told["devices"] if one["name"] == name]
    return dict(found)


class Vendor(NamedTuple):
    """One vendor's kind, on the software driver in place of the vendor's library."""

    kind: str
    sim: str  # the simulated kind on the same software driver
    version: str
    uuid: str  # how one begins
    hides: str  # a variable with which the vendor's library hides devices
    starts: str  # the vendor's function with which a library starts
    no_library: str  # in the advice
    no_device: str  # in the advice

    @property
    def switch(self) -> str:
        return f"TACK_MEMORY_{self.kind.upper()}_LIBRARY"

    @property
    def library(self) -> str:
        return sim_library_path(self.sim)


VENDORS = (
    Vendor("cuda", "sim", "13.0", "GPU-", "CUDA_VISIBLE_DEVICES", "cuInit", "install the driver", "nvidia-smi"),
    Vendor("hip", "sim-hip", "6.2.41134", "GPU-", "ROCR_VISIBLE_DEVICES", "hipInit", "hip-runtime-amd", "rocminfo"),
    Vendor("level_zero", "sim-level_zero", "1.17", "736f6674-", "ZE_AFFINITY_MASK", "zeInit", "libze1", "libze-intel-gpu1"),
)
each_vendor = pytest.mark.parametrize("v", VENDORS, ids=[v.kind for v in VENDORS])


def test_doctor_tells_vendors_devices_spilling_and_switches() -> None:
    done = run("doctor", "cpu", TACK_MEMORY_BUDGET="8 GiB", **NO_GPU)
    text = done.stdout
    wanted = (
        "cuda: NVIDIA",
        "cpu: ",
        "sim:0: ",
        "sim:1: ",
        "64 MiB in total, with memory pools",
        "spilling: ",
        "accounting only",
        "hip: AMD",
        "level_zero: Intel",
    )
    for name in (*wanted, "/nonexistent/library.so", "what to do: ", "pages of ", "TACK_MEMORY_BUDGET = 8 GiB", "No GPU can be used here", *SWITCHES):
        assert name in text, f"{name!r} is missing in:\n{text}"
    assert done.returncode == 0 and "asked for and not usable" not in text


def test_doctor_says_how_to_try_it_without_a_gpu() -> None:
    """A simulated device needs no switch; who has one that works, or a GPU, is told nothing."""
    line = 'To try spilling without a GPU, name a simulated device in any call: "sim:0", "sim-hip:0", "sim-level_zero:0".'
    nothing = {**NO_GPU, "TACK_MEMORY_SIM": ""}
    assert run("doctor", **nothing).stdout.endswith(line + "\n")
    done = run("doctor", "cpu", **nothing)
    assert done.returncode == 0 and line in done.stdout
    assert line in run("doctor", "cuda", **nothing).stdout
    for kind in ("sim", "sim-hip:0", "sim-level_zero"):
        assert "To try spilling" not in run("doctor", kind, **nothing).stdout
    assert "To try spilling" not in run("doctor", **{**NO_GPU, "TACK_MEMORY_SIM": "64 MiB"}).stdout
    vendor = VENDORS[0]
    assert "To try spilling" not in run("doctor", **{**nothing, vendor.switch: vendor.library}).stdout


def test_doctor_tells_a_budget_that_is_for_no_device() -> None:
    environment = {**NO_GPU, "TACK_MEMORY_BUDGET": "sim:0=1MiB,sim:7=1MiB,hip:3=1GiB"}
    code, told = doctor("sim:0", **environment)
    assert (code, list(told["budgets_for_nothing"])) == (0, ["sim:7", "hip:3"])
    text = run("doctor", **environment).stdout
    assert (
        "    the budget of sim:7 is for nothing: there are only sim:0, sim:1\n    the budget of hip:3 is for nothing: no usable library; tried /nonexistent"
        in text
    )
    assert doctor(TACK_MEMORY_BUDGET="8 GiB")[1]["budgets_for_nothing"] == {}


@each_vendor
def test_doctor_says_that_a_library_is_not_there_and_how_to_get_it(v: Vendor) -> None:
    """Where the linker finds none."""
    _, told = doctor("cpu", **{v.switch: ""})
    found = vendor(told, v.kind)
    if found["loaded"]:
        pytest.skip(f"needs a machine without a {v.kind} library, as CI's is; here the linker finds {found['library']}")
    assert (found["library"], found["named_by"], found["usable"], found["devices"]) == (None, None, False, [])
    assert "there" in found["why"] and v.no_library in found["advice"]


@each_vendor
@pytest.mark.parametrize(("file", "why"), [("/nonexistent/library.so", "it is not there"), ("/etc/passwd", "invalid ELF header"), ("libm.so.6", "it is no ")])
def test_doctor_says_which_variable_names_a_library_that_is_none(v: Vendor, file: str, why: str) -> None:
    code, told = doctor(**{v.switch: file})
    found = vendor(told, v.kind)
    assert (found["library"], found["loaded"], found["named_by"], found["usable"], found["devices"]) == (file, False, v.switch, False, [])
    assert f"{file}: {why}" in found["why"] and f"correct {v.switch}" in found["advice"]
    assert code == 1, "it was asked for, and does not work"
    assert {one["name"] for one in told["devices"]} == {"cpu", "sim:0", "sim:1"}, "a kind that cannot be used has no devices"
    assert f"library: {file}, named by {v.switch}: it cannot be loaded" in run("doctor", **{v.switch: file}).stdout
    assert told["switches"]["TACK_MEMORY_SIM"] == os.environ["TACK_MEMORY_SIM"]


def test_doctor_says_whose_library_it_is_not() -> None:
    """A library of another vendor has none of the functions, and an older one lacks some: which version is needed is told as the vendor writes it."""
    _, told = doctor(TACK_MEMORY_CUDA_LIBRARY=VENDORS[1].library, TACK_MEMORY_HIP_LIBRARY=VENDORS[2].library, TACK_MEMORY_LEVEL_ZERO_LIBRARY=VENDORS[0].library)
    for kind, name in (("cuda", "CUDA"), ("hip", "HIP"), ("level_zero", "Level Zero")):
        assert f"it is no {name} library" in vendor(told, kind)["why"]


@each_vendor
def test_doctor_tells_a_library_and_its_devices(v: Vendor) -> None:
    code, told = doctor(v.kind, **{v.switch: v.library, "TMSOFT_DEVICES": "2", v.hides: "0,1"})
    found = vendor(told, v.kind)
    assert (code, found["usable"], found["devices"], found["why"], found["advice"]) == (0, True, [f"{v.kind}:0", f"{v.kind}:1"], None, None)
    assert found["library"].startswith(v.library) and (found["loaded"], found["version"]) == (True, v.version)
    assert found["hiding"] == {v.hides: "0,1"} and found["missing"] == []
    second = device(told, f"{v.kind}:1")
    assert (second["total"], second["pools"], second["spills"]) == (2 << 30, v.kind != "level_zero", True)
    assert second["spilling"].startswith("under a budget, and when ") and second["uuid"].startswith(v.uuid)


@each_vendor
def test_doctor_tells_a_driver_without_devices(v: Vendor) -> None:
    without = {**NO_GPU, v.switch: v.library, "TMSOFT_DEVICES": "0", v.hides: ""}
    others = {one.switch: "" for one in VENDORS if one != v}
    code, told = doctor(**{**without, **others, "TACK_MEMORY_SIM": ""})
    found = vendor(told, v.kind)
    assert not found["usable"] and found["loaded"] and "no device" in found["why"] and v.no_device in found["advice"]
    assert found["hiding"] == {v.hides: ""}, "an empty list hides all"
    if not any(one["spills"] for one in told["devices"]):
        assert code == 1, "a driver is installed, does not work, and nothing else spills here"
    text = run("doctor", **without).stdout
    assert f'hides or renumbers devices: {v.hides}=""' in text and "No GPU can be used here" in text, "although simulated devices can"
    assert doctor(v.kind, **without)[1]["refused"] == {v.kind: found["why"]}


@pytest.mark.parametrize(
    ("v", "function", "code", "named", "advice"),
    [
        (VENDORS[0], "cuInit", 34, "CUDA_ERROR_STUB_LIBRARY (34)", "stub library"),
        (VENDORS[1], "hipInit", 35, "hipErrorInsufficientDriver (35)", "amdgpu driver is older"),
        (VENDORS[2], "zeInitDrivers", 0x70020000, "ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE (0x70020000)", "libigdgmm"),
    ],
    ids=["cuda", "hip", "level_zero"],
)
def test_doctor_says_why_a_driver_does_not_start(v: Vendor, function: str, code: int, named: str, advice: str) -> None:
    script = """
        import ctypes, json, sys
        from tack_memory._doctor import examine, exit_code
        library, function, code, kind = sys.argv[1:]
        assert ctypes.CDLL(library).tmsoft_fail(function.encode(), ctypes.c_ulong(1), int(code)) == 0
        told = examine([kind])
        print(json.dumps({**told["refused"], "code": exit_code(told, [kind])}))
    """
    done = run_python(script, v.library, function, str(code), v.kind, **{**NO_GPU, v.switch: v.library})
    told = json.loads(done.stdout)
    assert told["code"] == 1, done.stderr
    for part in (v.library, f"{function} failed: {named}", advice):
        assert part in told[v.kind]


@pytest.mark.parametrize("v", VENDORS[:2], ids=["cuda", "hip"])
def test_doctor_tells_that_there_are_no_memory_pools(v: Vendor) -> None:
    for environment, why in (({"TMSOFT_POOLS": "0"}, "no memory pools: "), ({"TACK_MEMORY_POOLS": "0"}, "no memory pools, because TACK_MEMORY_POOLS is 0")):
        found = device(doctor(**{v.switch: v.library}, **environment)[1], f"{v.kind}:0")
        assert found["usable"] and found["pools"] is False and any(note.startswith(why) for note in found["notes"])
    with_pools = device(doctor(**{v.switch: v.library})[1], f"{v.kind}:0")
    assert with_pools["pools"] and any("TACK_MEMORY_POOLS=0" in note for note in with_pools["notes"]) == (v.kind == "hip")


@pytest.mark.parametrize(
    ("environment", "notes"),
    [
        ({}, ["free memory is told by Sysman"]),
        ({"TMSOFT_SYSMAN": "2"}, ["told by the driver's figure of usable memory; not Sysman: ", "(0x70010000); run as a user that may read it"]),
        ({"TMSOFT_SYSMAN": "0", "TMSOFT_USABLEMEM": "0"}, ["free memory is unknown: a sixteenth of the total is left to others", "frees wait until"]),
        ({"ZES_ENABLE_SYSMAN": "1"}, ["ZES_ENABLE_SYSMAN is set", "unset it"]),
    ],
)
def test_doctor_tells_where_level_zeros_figure_of_free_memory_comes_from(environment: dict[str, str], notes: list[str]) -> None:
    v = VENDORS[2]
    found = device(doctor(**{v.switch: v.library}, **environment)[1], "level_zero:0")
    assert found["usable"] and found["spilling"] == "under a budget, and when the device is full by its figures"
    for note in notes:
        assert note in "\n".join(found["notes"])


@each_vendor
def test_doctor_tells_what_an_older_library_lacks(v: Vendor, tmp_path: Path) -> None:
    """The software driver without some functions is an old driver, and one that lacks what is needed cannot be used."""
    optional = {"cuda": "cuMemPoolCreate", "hip": "hipMemPoolCreate", "level_zero": "zesInit"}[v.kind]
    for hidden, usable in ((optional, True), (v.starts, False)):
        old = tmp_path / hidden
        subprocess.run(
            ["make", "-s", "-C", str(SOFTDRIVER), f"OUT={old}", f"ABIS={v.kind.replace('_', '')}", f"HIDE={hidden}", "OPTIMISE=-O0"], check=True, timeout=120
        )
        _, told = doctor(**{v.switch: str(old / Path(v.library).name)})
        found = vendor(told, v.kind)
        assert found["usable"] == usable
        if usable:
            assert any(f"the library lacks {hidden}" in text for text in found["missing"])
        else:
            assert f"it lacks {hidden}; " in found["why"] and "or newer is needed" in found["why"] and "0000" not in found["why"]


def test_doctor_answers_for_what_is_named() -> None:
    for names, code in ((["sim"], 0), (["sim:1", "cpu"], 0), (["sim:2"], 1), (["cuda"], 1), (["cpu", "cuda:0"], 1), (["sim-cuda:0"], 0), (["nonsense"], 2)):
        done = run("doctor", *names, **NO_GPU)
        assert done.returncode == code, f"{names}: {done.stdout}{done.stderr}"
    assert "'nonsense' is no device" in run("doctor", "nonsense").stderr
    text = run("doctor", "sim:2", "cpu", "cuda:0", **NO_GPU).stdout
    ending = text.partition("asked for and not usable:\n")[2].splitlines()
    assert ending[0] == "  sim:2: there are only sim:0, sim:1" and ending[1].startswith("  cuda:0: no usable library; tried /nonexistent") and len(ending) == 2


def test_without_names_a_machine_that_has_no_driver_is_all_right() -> None:
    from tack_memory._doctor import exit_code

    def told(spills: bool, **of_vendor: object) -> dict[str, Any]:
        vendors = [{"usable": False, "loaded": False, "named_by": None, **of_vendor}]
        return {
            "vendors": vendors,
            "devices": [{"kind": "cpu", "usable": True, "spills": False}, {"kind": "sim", "usable": True, "spills": spills}],
            "refused": {},
        }

    assert exit_code(told(False), []) == 0
    assert exit_code(told(False, loaded=True), []) == 1, "its driver does not work"
    assert exit_code(told(True, loaded=True), []) == 0, "something else spills"
    assert exit_code(told(True, named_by="TACK_MEMORY_CUDA_LIBRARY"), []) == 1, "it was asked for"
    assert exit_code(told(False, named_by="TACK_MEMORY_CUDA_LIBRARY", loaded=True, usable=True), []) == 0


def test_help_has_examples_and_exit_codes() -> None:
    for arguments in (["--help"], ["info", "--help"], ["doctor", "--help"]):
        done = run(*arguments)
        assert done.returncode == 0 and "examples:" in done.stdout and "exit codes:" in done.stdout


def test_wrong_arguments_are_exit_code_2() -> None:
    for arguments in ([], ["nonsense"], ["info", "--nonsense"]):
        assert run(*arguments).returncode == 2


@pytest.mark.parametrize("arguments", [["info"], ["doctor"], ["doctor", "--json"], ["--version"]])
def test_a_switch_of_a_wrong_form_is_a_line_and_exit_code_2(arguments: list[str]) -> None:
    done = run(*arguments, TACK_MEMORY_HOST_LIMIT="bogus")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("tack_memory: TACK_MEMORY_HOST_LIMIT: 'bogus' is not a size")


def test_another_program_gets_the_error_of_a_switch_as_an_exception(tmp_path: Path) -> None:
    (tmp_path / "tack_memory_user.py").write_text("try:\n    import tack_memory\nexcept ValueError as error:\n    print('caught', error)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TACK_MEMORY_POOLS": "some"}
    for start in (["-m", "tack_memory_user"], [str(tmp_path / "tack_memory_user.py")], ["-c", "import tack_memory_user"]):
        done = subprocess.run([sys.executable, *start], env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "caught TACK_MEMORY_POOLS=some: must be 1, true, yes, on (it is on) or 0, false, no, off (it is off)\n", done.stderr


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    for command in ("info", "doctor"):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([sys.executable, "-m", "tack_memory", command], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_version() -> None:
    import tack_memory

    assert run("--version").stdout.strip() == f"tack_memory {tack_memory.__version__}"
