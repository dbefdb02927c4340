"""python -m tack_memory: info and doctor."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tack_memory._settings import SWITCHES

NO_GPU = {name: "/nonexistent/library.so" for name in SWITCHES if name.endswith("_LIBRARY")}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tack_memory", *arguments], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


def test_info_has_a_line_for_each_device() -> None:
    done = run("info", **NO_GPU)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["MemoryInfo(cpu", "MemoryInfo(sim", "MemoryInfo(sim"]


def test_info_for_programs() -> None:
    done = run("info", "sim:1", "--json")
    (found,) = json.loads(done.stdout)
    assert (found["device"], found["device_total"], found["device_free"], found["in_use"]) == ("sim:1", 64 << 20, None, 0)


def test_an_unknown_device_is_exit_code_2() -> None:
    done = run("info", "sim:9")
    assert done.returncode == 2 and "unknown device 'sim:9'" in done.stderr and "known devices: " in done.stderr and done.stdout == ""


def test_doctor_tells_drivers_spilling_and_switches() -> None:
    done = run("doctor", TACK_MEMORY_BUDGET="8 GiB")
    text = done.stdout
    for name in ("cuda", "cpu", "sim:0", "sim:1", "spilling: ", "accounting only", "TACK_MEMORY_BUDGET = 8 GiB", *SWITCHES):
        assert name in text, f"{name!r} is missing in:\n{text}"


def test_doctor_says_why_a_driver_does_not_work() -> None:
    done = run("doctor", "--json", **NO_GPU)
    told = json.loads(done.stdout)
    cuda = next(device for device in told["devices"] if device["kind"] == "cuda")
    assert not cuda["usable"] and cuda["why"] and cuda["spilling"].startswith("none")
    assert {device["name"] for device in told["devices"] if device["usable"]} == {"cpu", "sim:0", "sim:1"}
    assert told["switches"]["TACK_MEMORY_SIM"] == os.environ["TACK_MEMORY_SIM"]


def test_doctor_says_how_to_try_it_without_a_gpu() -> None:
    done = run("doctor", **NO_GPU, TACK_MEMORY_SIM="")
    assert 'TACK_MEMORY_SIM="256 MiB"' in done.stdout


def test_help_has_examples_and_exit_codes() -> None:
    for arguments in (["--help"], ["info", "--help"], ["doctor", "--help"]):
        done = run(*arguments)
        assert done.returncode == 0 and "examples:" in done.stdout and "exit codes:" in done.stdout


def test_wrong_arguments_are_exit_code_2() -> None:
    for arguments in ([], ["nonsense"], ["info", "--nonsense"]):
        assert run(*arguments).returncode == 2


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
