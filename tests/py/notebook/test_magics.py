"""%load_ext tack_memory: what the magics show, what they refuse, and that they leave nothing behind. In this process, and in a real kernel."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import pytest
from support import MIB, run_python

import tack_memory
from tack_memory._notebook.arguments import join_sizes, split_options

DEVICE = "sim:0"


def figure(text: str, name: str) -> str:
    """A figure of a peak's text."""
    found = re.search(rf"^  {name} +(.+?)  ", text, re.MULTILINE)
    assert found, text
    return found[1].strip()


def test_a_cell_shows_its_peak_and_its_own_output(notebook: Any) -> None:
    text = notebook.run(f"%%memory_peak {DEVICE} -l 'two blocks'\na = tm.allocate(4 << 20, '{DEVICE}')\ndel a\nb = tm.allocate(1 << 20, '{DEVICE}')\n1 + 41")
    assert "two blocks on sim:0" in text and "42" in text
    assert figure(text, "own") == "4 MiB" and figure(text, "left behind") == "1 MiB" and figure(text, "delta") == "4 MiB"
    (html,) = notebook.html
    assert "two blocks" in html and "4 MiB" in html and "1 MiB" in html
    assert notebook.shell.user_ns["b"].nbytes == MIB, "the cell runs in the notebook's namespace"


def test_the_last_value_of_a_cell_is_a_result_and_a_semicolon_hides_it(notebook: Any) -> None:
    assert "'ab'" in notebook.run(f"%%memory_peak {DEVICE}\n'a' + 'b'")
    assert notebook.shell.user_ns["_"] == "ab"
    assert "'cd'" not in notebook.run(f"%%memory_peak {DEVICE}\n'c' + 'd';")


def test_a_line_returns_the_value_and_with_o_the_peak(notebook: Any) -> None:
    text = notebook.run(f"value = %memory_peak -d {DEVICE} -l line len(bytes(tm.allocate(2 << 20, '{DEVICE}').copy_to_host()))")
    assert notebook.shell.user_ns["value"] == 2 * MIB and figure(text, "own") == "2 MiB" and "line on sim:0" in text
    notebook.run(f"peak = %memory_peak -d {DEVICE} -o tm.allocate(3 << 20, '{DEVICE}') and 1")
    peak = notebook.shell.user_ns["peak"]
    assert isinstance(peak, tack_memory.MemoryPeak) and peak.own == 3 * MIB and peak.end is not None
    assert figure(notebook.run(f"%memory_peak --device={DEVICE} -- -tm.allocate(1 << 20, '{DEVICE}').nbytes"), "own") == "1 MiB"


def test_spills_and_restores_are_shown(notebook: Any) -> None:
    text = notebook.run(f"%%memory_peak {DEVICE}\na = tm.allocate(2 << 20, '{DEVICE}')\na.spill()\na.restore();")
    assert figure(text, "spilled") == "2 MiB" and figure(text, "restored") == "2 MiB"


def test_holders_at_the_peak_are_told_with_origins_and_asked_for_without(notebook: Any) -> None:
    cell = f"a = tm.allocate(4 << 20, '{DEVICE}', label='<first>')\nb = tm.allocate(1 << 20, '{DEVICE}');"
    text = notebook.run(f"%%memory_peak {DEVICE} --origins\n{cell}")
    assert re.search(r"4 MiB  <first> \(\S+:1\)", text) and re.search(r"1 MiB  \S+:2", text), text
    assert "&lt;first&gt;" in notebook.html[0] and "<first>" not in notebook.html[0]
    assert tack_memory.set_origins("off") == "off", "it was on for the cell only"
    assert "set_origins" in notebook.run(f"%%memory_peak {DEVICE}\n1;")


def test_a_failing_cell_fails_and_shows_its_peak_and_no_frame_of_ours(notebook: Any) -> None:
    text = notebook.run(f"%%memory_peak {DEVICE} --origins\nz = tm.allocate(1 << 20, '{DEVICE}')\n1 / 0\n", fails=True)
    assert figure(text, "own") == "1 MiB" and "ZeroDivisionError" in text and "1 / 0" in text
    assert "_notebook" not in text
    assert tack_memory.set_origins("off") == "off"
    assert "SyntaxError" in notebook.run(f"%%memory_peak {DEVICE}\na = 1 1", fails=True)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%memory_info nosuch", "unknown device 'nosuch'"),
        ("%memory_info sim:0 sim:1", "too many arguments: sim:0 sim:1"),
        ("%memory_info --what", "there is no option --what"),
        ("%memory_info 'sim:0", "No closing quotation"),
        ("%memory_info my_device", "for the value of your variable write {my_device}"),
        ("%memory_budget 2G sim:0", "can be read in two ways"),
        ("%memory_budget 0 sim:0", "a budget cannot be 0"),
        ("%memory_budget 8 bananas", "unknown device 'bananas'|too many"),
        ("%memory_budget --strict", "--strict is for a budget that is set"),
        ("%memory_budget 8MiB sim:0 sim:1", "too many arguments"),
        ("%memory_budget sim:0 8MiB", "the size comes first: %memory_budget 8MiB sim:0"),
        ("%memory_budget sim:0 8 MiB --strict;", "the size comes first: %memory_budget 8 MiB sim:0 --strict"),
        ("%memory_info -1", "there is no option -1"),
        ("%memory_peak -d sim:0 x=1", "one line takes an expression; a statement needs %%memory_peak: x=1"),
        ("%memory_peak -d sim:0 del x", "a statement needs %%memory_peak"),
        ("%memory_peak -d sim:0 1 +", "this is no expression: 1 \\+ "),
        ("%memory_peak -d sim:0 (yield)", "this is no expression: \\(yield\\) \\('yield' outside function"),
        ("def f(x):\n    %memory_peak -d sim:0 await x\nf(1)", "cannot run a top-level await"),
        ("%memory_peak -dsim:0 1", "an option and its value are two words: -d sim:0"),
        ("%memory_peak", "there is no expression to run"),
        ("%memory_peak -d", "-d needs a value"),
        ("%memory_peak -x 1", "there is no option -x"),
        ("%memory_peak --origins=1 1", "--origins takes no value"),
        ("%%memory_peak sim:0 sim:1\n1", "too many arguments: sim:1"),
        ("%%memory_peak -d sim:0 sim:1\n1", "two devices: sim:0 and sim:1"),
        ("%%memory_peak -dsim:0\n1", "there is no option -dsim:0 \\(an option and its value are two words: -d sim:0"),
        ("%%memory_peak sim:0 -lname\n1", "too many arguments: -lname \\(an option and its value are two words: -l name"),
        ("%%memory_peak -l 'open\n1", "no closing quote"),
        ("%%memory_peak nosuch\nnever = 1", "unknown device"),
        ("%%memory_peak sim:0\nimport asyncio\nawait asyncio.sleep(0)", "cannot run a top-level await"),
    ],
)
def test_wrong_arguments_are_usage_errors(notebook: Any, line: str, says: str) -> None:
    notebook.run("my_device = 'sim:0'")
    budget = tack_memory.get_memory_budget(DEVICE)
    text = notebook.run(line, fails=True)
    assert text.startswith("UsageError: ") and re.search(says.replace("{", r"\{"), text), text
    assert "Traceback" not in text and "File" not in text and (text.count("[device]") == text.count("usage: ") == 1 or "await" in text)
    assert tack_memory.get_memory_budget(DEVICE) == budget and "never" not in notebook.shell.user_ns


def test_the_budget_is_set_shown_and_taken_away(notebook: Any) -> None:
    before = tack_memory.get_memory_budget(DEVICE)
    try:
        assert "budget 8 MiB (strict)" in notebook.run(f"%memory_budget 8 MiB {DEVICE} --strict")
        assert tack_memory.get_memory_budget(DEVICE) == 8 * MIB and tack_memory.memory_info(DEVICE).strict
        assert "budget 8 MiB (strict)" in notebook.run(f"%memory_budget {DEVICE}"), "it is shown, not changed"
        text = notebook.run(f"size = 4 << 20\n%memory_budget {{size}} {DEVICE}")
        assert "budget 4 MiB;" in text and "before: 8 MiB" in text and "4 MiB" in notebook.html[0]
        assert "budget none" in notebook.run(f"%memory_budget none {DEVICE}")
        assert tack_memory.get_memory_budget(DEVICE) is None
    finally:
        tack_memory.set_memory_budget(before, DEVICE)


def test_the_info_of_a_device_as_text_and_as_html(notebook: Any) -> None:
    text = notebook.run(f"block = tm.allocate(5 << 20, '{DEVICE}')\n%memory_info {DEVICE}")
    assert "MemoryInfo(sim:0: in use " in text and 'class="tack-memory"' in notebook.html[0]


def test_semicolons_at_the_end_are_no_arguments(notebook: Any) -> None:
    assert "MemoryInfo(sim:0" in notebook.run(f"%memory_info {DEVICE};") and "sim:0: budget" in notebook.run(f"%memory_budget {DEVICE} ;")
    assert figure(notebook.run(f"%%memory_peak {DEVICE};\na = tm.allocate(1 << 20, '{DEVICE}')"), "own") == "1 MiB"
    assert "a; on sim:0" in notebook.run(f"%%memory_peak {DEVICE} -l 'a;'\n1"), "in quotes it is one"


def test_origins_that_are_recorded_already_stay(notebook: Any) -> None:
    notebook.run("tm.set_origins('stack');")
    try:
        notebook.run(f"%%memory_peak {DEVICE} --origins\nwith tm.memory_peak('{DEVICE}'):\n    mode = tm.set_origins('stack')")
        assert notebook.shell.user_ns["mode"] == "stack"
    finally:
        assert tack_memory.set_origins("off") == "stack"


def test_a_wrong_device_forgets_nothing(notebook: Any) -> None:
    before = tack_memory.memory_info(DEVICE).in_use
    notebook.run(f"def apply():\n    scratch = tm.allocate(4 << 20, '{DEVICE}')\n    1 / 0")
    notebook.run("apply()", fails=True)
    assert "unknown device" in notebook.run("%memory_info nosuch --forget", fails=True)
    assert tack_memory.memory_info(DEVICE).in_use == before + 4 * MIB
    assert "4 MiB: scratch in apply" in notebook.run(f"%memory_info {DEVICE}")


@pytest.mark.parametrize(
    "expression", ["n + 1", "[n + i for i in range(n)][1] + n - 5", "(lambda: n + 1)()", "sum(n for _ in 'ab') - given + 1", "(m := n) + 1"]
)
def test_in_a_function_an_expression_sees_its_variables(notebook: Any, expression: str) -> None:
    text = notebook.run(f"given = 5\ndef use(n):\n    value = %memory_peak -d {DEVICE} {expression}\n    return value\nuse(5)")
    assert notebook.shell.user_ns["_"] == 6 and "peak on sim:0" in text
    notebook.run(f"value = %memory_peak -d {DEVICE} (kept := given + 1)")
    assert notebook.shell.user_ns["kept"] == notebook.shell.user_ns["value"] == 6, "in a cell they are the notebook's"


def test_what_fails_in_a_function_keeps_arrays_that_are_named(notebook: Any) -> None:
    notebook.run(f"def use(n):\n    mine = tm.allocate(n, '{DEVICE}')\n    %memory_peak -d {DEVICE} mine.nbytes / 0")
    text = notebook.run("use(4 << 20)", fails=True)
    assert "1 array of 4 MiB on sim:0 is kept alive only by the stored traceback of ZeroDivisionError" in text and "mine in " in text


def test_a_budget_that_spills_nothing_is_a_note_of_the_magics() -> None:
    """In a process of its own: it is said once in each."""
    done = run_python(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_cell("%load_ext tack_memory")
        shell.run_cell("%memory_budget 8 MiB cpu")
        """
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "cpu: budget 8 MiB; in use 0 B, spilled 0 B; before: no budget\ncpu: a budget is counted here, but nothing is ever spilled" in done.stdout


def test_of_numpys_memory_it_is_said_what_tells_the_lines() -> None:
    pytest.importorskip("numpy")
    done = run_python(
        """
        import tack_memory.numpy
        from IPython.core.interactiveshell import InteractiveShell
        tack_memory.numpy.install()
        shell = InteractiveShell.instance()
        shell.run_cell("%load_ext tack_memory\\nimport tack_memory as tm\\nimport numpy as np")
        shell.run_cell("%%memory_peak numpy --origins\\na = np.ones(1 << 20)")
        from tack_memory._notebook import magics, shown
        html = []
        magics.show = lambda shown: html.append(shown._repr_html_())
        shell.run_cell("%memory_peak -d numpy 1")
        assert "tack_memory.numpy.track() as t" in html[0], html
        """
    )
    assert done.returncode == 0, done.stderr
    assert "tack_memory.numpy.track() as t" in done.stdout, done.stdout


def test_the_bar_that_somebody_has_set_stays(notebook: Any) -> None:
    pytest.importorskip("tqdm")
    before = tack_memory.set_progress(None)
    try:
        notebook.run("%unload_ext tack_memory")
        notebook.run("%load_ext tack_memory")
        notebook.run("tm.set_progress('tqdm', after=5)")
        notebook.run("%unload_ext tack_memory")
        assert tack_memory.set_progress(None) == "tqdm", "it is not what %load_ext has set"
        notebook.run("%load_ext tack_memory")
        notebook.run("%unload_ext tack_memory")
        assert tack_memory.set_progress(None) is None
        notebook.run("%load_ext tack_memory")
    finally:
        tack_memory.set_progress(before)


def test_help_tells_usage_and_examples(notebook: Any) -> None:
    magics = notebook.shell.magics_manager.magics
    for kind, name in (("cell", "memory_peak"), ("line", "memory_peak"), ("line", "memory_info"), ("line", "memory_budget")):
        text = magics[kind][name].__doc__
        assert "Usage" in text and f"%{name}" in text and "device" in text, name


def test_it_unloads_loads_again_and_reloads(notebook: Any) -> None:
    shell = notebook.shell
    hooks = len(shell.events.callbacks["post_run_cell"])
    notebook.run("%unload_ext tack_memory")
    assert not [name for kind in shell.magics_manager.magics.values() for name in kind if name.startswith("memory_")]
    assert len(shell.events.callbacks["post_run_cell"]) == hooks - 1
    assert "not found" in notebook.run("%memory_info", fails=True)
    notebook.run("%load_ext tack_memory")
    notebook.run("%reload_ext tack_memory")
    tack_memory.load_ipython_extension(shell)  # a second time
    assert len(shell.events.callbacks["post_run_cell"]) == hooks
    assert "MemoryInfo" in notebook.run(f"%memory_info {DEVICE}")


def test_nothing_stays_alive_for_the_magics(notebook: Any) -> None:
    tack_memory.synchronize(DEVICE)
    gc.collect()
    before = tack_memory.memory_info(DEVICE).in_use
    notebook.run(f"%%memory_peak {DEVICE} --origins\ntemporary = tm.allocate(1 << 20, '{DEVICE}')\ndel temporary")
    notebook.run(f"%memory_peak -d {DEVICE} tm.allocate(1 << 20, '{DEVICE}').nbytes")
    assert tack_memory.memory_info(DEVICE).in_use == before


def test_options_come_before_an_expression_that_may_be_anything() -> None:
    split = {"flags": ("-o", "--origins"), "valued": ("-l", "--label")}
    assert split_options("-l 'a b' f(x, key='-l c')", **split) == ({"-l": "a b"}, "f(x, key='-l c')")
    assert split_options("--label=run --origins a - b", **split) == ({"--label": "run", "--origins": ""}, "a - b")
    assert split_options("-abs(x)", **split) == ({}, "-abs(x)")
    assert split_options("-o -- -x", **split) == ({"-o": ""}, "-x")
    assert join_sizes(["8", "GiB", "cuda:0"]) == ["8 GiB", "cuda:0"] and join_sizes(["1.5GB", "sim"]) == ["1.5GB", "sim"]


def test_in_a_real_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTML and text travel as one output; a failing cell is an error for the client, after its figures."""
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel (pip install 'tack-memory[test]')")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel (pip install 'tack-memory[test]')")
    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    cells = [
        "%load_ext tack_memory\nimport tack_memory as tm",
        f"%%memory_peak {DEVICE} --origins\na = tm.allocate(2 << 20, '{DEVICE}')",
        f"def apply(n):\n    scratch = tm.allocate(n, '{DEVICE}')\n    raise ValueError('no')\napply(3 << 20)",
        f"%memory_info {DEVICE} --forget",
        f"tm.memory_report('{DEVICE}')",
    ]
    written = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    nbclient.NotebookClient(written, timeout=120, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell["outputs"] for cell in written["cells"]]
    (peak,) = outputs[1]
    assert "2 MiB" in peak["data"]["text/plain"] and "In[2]:1" in peak["data"]["text/plain"] and 'class="tack-memory"' in peak["data"]["text/html"]
    error = next(one for one in outputs[2] if one["output_type"] == "error")
    assert error["ename"] == "ValueError"
    (warning,) = (one["data"]["text/plain"] for one in outputs[2] if one["output_type"] == "display_data")
    assert "1 array of 3 MiB on sim:0 is kept alive only by the stored traceback of ValueError" in warning and "scratch in apply (In[3]:3)" in warning
    assert "the stored error is forgotten; arrays that only it kept alive: 3 MiB" in outputs[3][0]["data"]["text/plain"]
    assert "in use 2 MiB" in outputs[4][0]["data"]["text/plain"] or "2 MiB" in outputs[4][0]["data"]["text/html"]


def test_importing_the_package_imports_no_ipython() -> None:
    done = run_python("import sys, tack_memory\nassert not [name for name in sys.modules if name.startswith(('IPython', 'tack_memory._notebook'))]")
    assert done.returncode == 0, done.stderr
