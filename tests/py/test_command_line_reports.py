"""python -m tack_memory: report, diff and demo."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from report_support import MIB, holder, report, whole
from support import NO_GPU, run_python
from test_command_line import run


@pytest.fixture
def saved(tmp_path: Path) -> str:
    whole().save(tmp_path / "a.json")
    return str(tmp_path / "a.json")


def test_a_saved_report_is_printed(saved: str) -> None:
    done = run("report", saved)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{whole()}\n", "")


def test_paths_are_shortened_and_holders_cut(saved: str) -> None:
    done = run("report", saved, "--root", "/home/me/project", "--top", "1")
    assert "points (mesh.py:7)\n" in done.stdout and "     6 MiB in 1 more holders\n" in done.stdout and "/home/me" not in done.stdout


def test_a_report_for_programs(saved: str) -> None:
    assert json.loads(run("report", saved, "--json").stdout) == whole().to_dict()


def test_pages_and_profiles_are_written(saved: str, tmp_path: Path) -> None:
    done = run("report", saved, "--html", str(tmp_path / "a.html"), "--pprof", str(tmp_path / "a.pb.gz"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "Flame graph" in (tmp_path / "a.html").read_text() and (tmp_path / "a.pb.gz").read_bytes()[:2] == b"\x1f\x8b"


@pytest.mark.parametrize("command", [["report"], ["diff"], ["report", "--json"]])
def test_a_file_that_is_none_is_exit_code_2(command: list[str], saved: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    for file, said in ((str(tmp_path / "text"), "is no report of tack_memory"), (str(tmp_path / "nothing"), "nothing: No such file or directory")):
        done = run(*command, file, *([saved] if command == ["diff"] else []))
        assert done.returncode == 2 and said in done.stderr and done.stdout == "" and done.stderr.count("\n") == 1
    done = run("report", saved, "--html", str(tmp_path / "no" / "a.html"))
    assert done.returncode == 2 and "a.html: No such file or directory" in done.stderr


def test_the_exit_code_of_diff_says_whether_something_grew(tmp_path: Path) -> None:
    report(holder("a", "/p/x.py:1", 5)).save(tmp_path / "a.json")
    report(holder("a", "/p/x.py:1", 5), holder("b", None, MIB)).save(tmp_path / "b.json")
    a, b = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    done = run("diff", a, b)
    assert done.returncode == 1 and done.stdout.splitlines()[0] == "cuda:0: 5 B held, then 1 MiB: +1 MiB" and done.stdout.endswith("  new     b\n")
    assert run("diff", b, a).returncode == 0, "it shrank"
    same = run("diff", a, a, "--root", "/p")
    assert (same.returncode, same.stdout) == (0, "cuda:0: nothing changed; 5 B held\n")
    told = run("diff", a, b, "--json")
    assert told.returncode == 1 and json.loads(told.stdout)["bytes"] == MIB


def test_the_demo_gives_the_same_results_under_its_budget() -> None:
    done = run("demo", **NO_GPU)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    no_budget, budget = (line.split() for line in lines[3:5])
    assert no_budget[-1] == budget[-1] and no_budget[-5:-1] == ["0", "0", "0", "B"] and int(budget[-5]) > 0
    assert "The results are the same, byte for byte." in lines and any(line.startswith("thrashing since") for line in lines)
    told = json.loads(run("demo", "--json", "--device", "sim-hip:0", **NO_GPU).stdout)
    runs = told["runs"]
    assert told["same"] and told["device"] == "sim-hip:0" and runs[1]["peak"] <= runs[1]["budget"] < runs[0]["peak"] and runs[1]["spill_count"] > 0


def test_the_demo_on_a_device_that_is_not_there_or_cannot_spill() -> None:
    counted = run("demo", "--device", "cpu")
    assert (counted.returncode, counted.stderr) == (1, "tack_memory demo: cpu: nothing is spilled there: device memory is host memory\n")
    unknown = run("demo", "--device", "cuda:7x")
    assert unknown.returncode == 2 and "unknown device 'cuda:7x'" in unknown.stderr


@pytest.mark.parametrize("command", ["report", "diff", "demo"])
def test_each_has_help_with_examples_and_exit_codes(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0 and "examples:" in done.stdout and "exit codes:" in done.stdout and f"python -m tack_memory {command}" in done.stdout
    assert all(len(line) <= 160 for line in done.stdout.splitlines())


def test_a_leak_between_two_moments_of_a_program(tmp_path: Path) -> None:
    """As a person would look for one."""
    script = """
        import tack_memory as tm
        tm.set_origins("line")
        cache = []
        def step(n):
            cache.append(tm.allocate(1000, "sim:0"))
            tm.allocate(500, "sim:0")
        step(0)
        tm.memory_report("sim:0").save("a.json")
        for n in range(5): step(n)
        tm.memory_report("sim:0").save("b.json")
    """
    import os

    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        done = run_python(script)
        assert done.returncode == 0, done.stderr
        told = json.loads(run("diff", "a.json", "b.json", "--json").stdout)
    finally:
        os.chdir(here)
    (change,) = told["changes"]
    assert (change["bytes"], change["buffers"], change["kind"]) == (5000, 5, "grew") and ":6" in change["origin"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("command", ["report", "diff", "info"])
def test_an_output_that_is_full_is_said_in_a_line(command: str, saved: str) -> None:
    files = {"report": [saved], "diff": [saved, saved], "info": ["cpu"]}[command]
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "tack_memory", command, *files], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"tack_memory {command}: the output cannot be written: No space left on device\n")


def test_a_page_that_finds_no_room_is_named(saved: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    done = run("report", saved, "--html", "/dev/full")
    assert (done.returncode, done.stderr) == (2, "tack_memory report: /dev/full: No space left on device\n")


@pytest.mark.parametrize("option", ["--html", "--pprof"])
def test_an_empty_name_of_a_file_is_none(saved: str, option: str) -> None:
    done = run("report", saved, option, "")
    assert done.returncode == 2 and "No such file or directory" in done.stderr and done.stdout == "", "and the report is not printed in its place"


def test_exit_codes_of_diff_hold_whatever_becomes_of_its_text(tmp_path: Path) -> None:
    """1 says that something grew, and is also what a traceback ends with."""
    for name, label, nbytes in (("a", "caf\xe9 \udcff", 5), ("b", "caf\xe9 \udcff", 4)):
        report(holder(label, None, nbytes)).save(tmp_path / f"{name}.json")
    a, b = str(tmp_path / "a.json"), str(tmp_path / "b.json")
    for encoding, shown in (("ascii", "caf\\xe9 \\udcff"), ("utf-8", "caf\xe9 \\udcff")):
        for files, code in (((a, b), 0), ((b, a), 1)):
            done = run("diff", *files, PYTHONIOENCODING=f"{encoding}:strict")
            assert (done.returncode, done.stderr) == (code, "") and done.stdout.rstrip().endswith(shown)
            closed = [sys.executable, "-c", "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'tack_memory', *sys.argv[1:]])"]
            silent = subprocess.run([*closed, "diff", *files], stderr=subprocess.PIPE, text=True, check=False)
            assert (silent.returncode, silent.stderr) == (code, "")
    Path(a).write_text("[" * 200_000)
    assert run("diff", a, b).returncode == 2


def test_top_must_be_a_number(saved: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tack_memory", "report", saved, "--top", "-1"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no number of holders" in done.stderr
