"""The documentation: its programs run and print what it shows; its lists are complete; its links lead somewhere."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import docs_blocks
import pytest
from docs_blocks import DOCS, ROOT, Program, printed, programs, steady

import tack_memory
import tack_memory.numpy

PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.name not in ("hosts.md", "plan-coverage.md")]
PROGRAMS = [program for page in PAGES for program in programs(page)]
REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))


@pytest.mark.parametrize("program", PROGRAMS, ids=[f"{program.page.relative_to(DOCS)}:{number}" for number, program in enumerate(PROGRAMS)])
def test_a_program_prints_what_is_shown(program: Program) -> None:
    said = steady(printed(program))
    if program.title:
        assert steady(program.shown).strip() in said
    else:
        assert said == steady(program.shown)


def test_few_programs_are_not_run() -> None:
    assert len(PROGRAMS) >= 17 and sum(map(docs_blocks.not_run, PAGES)) <= 4, "those need Tack, a notebook, a cluster, or a test's fixture"


def test_every_public_name_is_in_the_reference() -> None:
    named = set(re.findall(r"^::: tack_memory\.(\w+)$", REFERENCE, re.MULTILINE))
    public = set(tack_memory.__all__) - {"__version__", "memory_peak"}  # which is MemoryPeak
    assert public - named == set()
    assert "::: tack_memory.numpy\n" in REFERENCE and tack_memory.numpy.__all__


@pytest.mark.parametrize("module", ["dask", "mpi"])
def test_every_public_name_of_a_cluster_is_in_the_reference(module: str) -> None:
    pytest.importorskip({"dask": "distributed", "mpi": "mpi4py"}[module], reason=f"the extra tack-memory[{module}] is not installed")
    public = importlib.import_module(f"tack_memory.{module}").__all__
    assert set(public) == set(re.findall(rf"^::: tack_memory\.{module}\.(\w+)$", REFERENCE, re.MULTILINE))


def test_every_option_of_pytest_is_in_the_reference() -> None:
    import _tack_memory_pytest as plugin

    source = Path(str(plugin.__file__)).read_text(encoding="utf-8")
    options = set(re.findall(r'"(--device-memory[a-z-]*)"', source))
    text = (DOCS / "reference" / "pytest.md").read_text(encoding="utf-8")
    assert options and {option for option in options if option not in text} == set()


def test_every_setting_is_in_the_reference_as_in_the_readme() -> None:
    from tack_memory._settings import SWITCHES

    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    assert {name for name in SWITCHES if name not in text} == set()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.removeprefix("# Settings\n").strip() in readme, "one text, in two places"


def test_every_command_is_in_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    from tack_memory import __main__ as command_line

    text = (DOCS / "reference" / "command-line.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        command_line.main(["no such command"])
    choices = capsys.readouterr().err.partition("choose from ")[2]
    commands = set(re.findall(r"\w+", choices))
    assert {"info", "demo"} < commands and {name for name in commands if f"| `{name}" not in text} == set()


def test_links_and_pictures_lead_to_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page for page in (*PAGES, DOCS / "hosts.md") if f": {page.relative_to(DOCS).as_posix()}\n" not in navigation] == []


def test_a_page_that_loads_something_is_found() -> None:
    sys.path.insert(0, str(ROOT / "buildsystem"))
    try:
        import docs
    finally:
        sys.path.remove(str(ROOT / "buildsystem"))
    wrong = '<script src="https://x/y.js"></script><img alt="" src=//x/y.png><link rel="stylesheet" href="https://x/y.css">'
    assert len(docs.loaded_from_elsewhere(wrong)) == 3
    assert len(docs.loaded_by_styles("a { background: url(https://x/y.png) } @import '//x/y.css';")) == 2
    assert docs.loaded_by_styles("a { background: url(data:image/png;base64,x) } @import 'y.css';") == []
    right = '<a href="https://x">x</a><script src="a.js"></script><img src="data:image/png;base64,x"><link rel="canonical" href="https://x">'
    assert docs.loaded_from_elsewhere(right) == []
