"""Callbacks for modules that are imported already or come later: they run in time, once, and leave no trace on the module."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest
from support import run_python

START = """
    import sys
    from tack_memory._imports import when_imported
    before = list(sys.meta_path)
    came = []
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a package `later`: it has a submodule and a data file, and says who loads it while it is executed."""
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "__init__.py").write_text("while_executed = __loader__, __spec__.loader\nclass Thing: ...\nready = True\n")
    (tmp_path / "later" / "sub.py").write_text("import later\nready = True\n")
    (tmp_path / "later" / "data.txt").write_text("data")
    return tmp_path


def said(place: Path, script: str, *arguments: str, **environment: str) -> list[str]:
    """What a script prints that finds `place` on its path; it ends well."""
    path = os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])
    done = run_python(dedent(START) + dedent(script), *arguments, **{"PYTHONPATH": path, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_runs_before_the_importing_statement_goes_on(place: Path) -> None:
    script = """
        when_imported("later", lambda module: came.append(module.ready))
        when_imported("later", lambda module: came.append("second"))
        when_imported("later.sub", lambda module: came.append(module.__name__))
        print(came)
        import later
        print(came)
        import later.sub, later
        print(came)
    """
    assert said(place, script) == ["[]", "[True, 'second']", "[True, 'second', 'later.sub']"]


def test_a_module_that_is_imported_already_comes_at_once(place: Path) -> None:
    script = """
        import later
        awaited = when_imported("later", came.append)
        print(came == [later], awaited.cancel(), sys.meta_path == before)
    """
    assert said(place, script) == ["True False True"]


def test_the_callback_may_import_the_module_and_its_parts(place: Path) -> None:
    script = """
        def callback(module):
            import later, later.sub
            came.append(later is module and later.sub.ready)
        when_imported("later", callback)
        import later
        print(came)
    """
    assert said(place, script) == ["[True]"]


def test_the_module_has_its_own_loader(place: Path) -> None:
    """While it is executed, too: some look for their data files then."""
    script = """
        import importlib.machinery, importlib.resources, inspect, pickle, pkgutil
        when_imported("later", came.append)
        import later
        for loader in (later.__loader__, later.__spec__.loader, *later.while_executed):
            print(type(loader) is importlib.machinery.SourceFileLoader)
        print(inspect.getsource(later.Thing).strip(), pkgutil.get_data("later", "data.txt"))
        print((importlib.resources.files("later") / "data.txt").read_text(), pickle.loads(pickle.dumps(later.Thing)) is later.Thing)
    """
    assert said(place, script) == ["True"] * 4 + ["class Thing: ... b'data'", "data True"]


def test_a_spec_that_is_only_looked_at_is_as_good_as_any(place: Path) -> None:
    script = """
        import copy, importlib.machinery, importlib.util, pickle
        plain = importlib.util.find_spec("later")
        when_imported("later", came.append)
        spec = importlib.util.find_spec("later")
        loader = spec.loader
        print(isinstance(loader, importlib.machinery.SourceFileLoader), loader.get_source("later") == plain.loader.get_source("later"))
        print(spec == plain, "SourceFileLoader object" in repr(spec), loader.is_package("later"), loader.name)
        print(*(type(one) is importlib.machinery.SourceFileLoader for one in (copy.copy(loader), pickle.loads(pickle.dumps(loader)))))
        private = importlib.util.module_from_spec(spec)  # a private copy of the module: not what is awaited
        spec.loader.exec_module(private)
        print(came, private.ready)
        import later
        print(came == [later])
    """
    assert said(place, script) == ["True True", "True True True later", "True True", "[] True", "True"]


def test_an_import_that_fails_may_be_tried_again(place: Path) -> None:
    (place / "failing.py").write_text("import builtins\nif not hasattr(builtins, 'may_work'): raise OSError('not now')\n")
    script = """
        import builtins
        when_imported("failing", came.append)
        for attempt in range(3):
            try:
                import failing
            except OSError as error:
                print(error, came)
            if attempt == 1:
                builtins.may_work = True
        print(came == [failing], sys.meta_path == before)
    """
    assert said(place, script) == ["not now []", "not now []", "True True"]


def test_reload_works_and_is_no_second_coming(place: Path) -> None:
    script = """
        import importlib.machinery
        when_imported("later", came.append)
        when_imported("never", came.append)
        import later
        importlib.reload(later)
        print(came == [later], type(later.__loader__) is importlib.machinery.SourceFileLoader)
    """
    assert said(place, script) == ["True True"]


def test_with_the_last_one_the_finder_goes(place: Path) -> None:
    script = """
        first, second = (when_imported(name, came.append) for name in ("later", "later.sub"))
        third = when_imported("never", came.append)
        print(len(sys.meta_path) - len(before))
        print(third.cancel(), third.cancel())
        import later
        print(len(sys.meta_path) - len(before))
        import later.sub
        print(sys.meta_path == before, first.cancel(), second.cancel())
    """
    assert said(place, script) == ["1", "True False", "1", "True False False"]


def test_whoever_goes_through_the_finders_meanwhile_passes_none_over(place: Path) -> None:
    """Another thread, in the middle of an import: it would not find its module."""
    script = """
        awaited = when_imported("never", came.append)
        going = iter(sys.meta_path)
        next(going)
        awaited.cancel()
        print(list(going) == before, sys.meta_path == before)
    """
    assert said(place, script) == ["True True"]


def test_what_is_cancelled_does_not_run(place: Path) -> None:
    script = """
        when_imported("later", came.append)
        when_imported("later", lambda module: other.cancel())
        other = when_imported("later", lambda module: came.append("cancelled"))
        when_imported("later", lambda module: came.append("cancelled")).cancel()
        import later
        print(came == [later])
    """
    assert said(place, script) == ["True"]


def test_a_finder_that_came_later_hides_nothing(place: Path) -> None:
    """Tools that change modules as they are loaded put a finder of their own in front, which asks the path by itself."""
    (place / "anything.py").write_text("")
    script = """
        import importlib.machinery
        when_imported("later", came.append)
        class Other:
            def find_spec(self, name, path=None, target=None):
                return importlib.machinery.PathFinder.find_spec(name, path, target) if name == "later" else None
        other = Other()
        sys.meta_path.insert(0, other)
        import anything
        import later
        print(came == [later], sys.meta_path == [other, *before])
    """
    assert said(place, script) == ["True True"]


def test_a_module_in_an_archive_and_one_that_is_loaded_lazily(place: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("zipped.py", "ready = True\n")
    script = """
        import importlib.util, zipimport
        sys.path.append(sys.argv[1])
        when_imported("zipped", came.append)
        when_imported("later", lambda module: came.append(module.ready))
        import zipped
        print(came == [zipped], isinstance(zipped.__loader__, zipimport.zipimporter))
        spec = importlib.util.find_spec("later")
        lazy = spec.loader = importlib.util.LazyLoader(spec.loader)
        later = sys.modules["later"] = importlib.util.module_from_spec(spec)
        lazy.exec_module(later)
        print(len(came))
        later.Thing
        print(came[1:])
    """
    assert said(place, script, str(tmp_path / "archive.zip")) == ["True True", "1", "[True]"]


def test_a_namespace_package_and_a_missing_module_are_not_disturbed(place: Path) -> None:
    (place / "space").mkdir()
    script = """
        when_imported("space", came.append)
        when_imported("missing", came.append)
        import space
        print(space.__path__._name, came)
        try:
            import missing
        except ModuleNotFoundError as error:
            print(error)
        when_imported("space", came.append)
        print(came == [space])
    """
    assert said(place, script) == ["space []", "No module named 'missing'", "True"]


def test_threads_that_import_it_at_once_see_it_after_the_callback(place: Path) -> None:
    (place / "slow.py").write_text("import time\ntime.sleep(0.2)\n")
    script = """
        import threading, time
        def callback(module):
            time.sleep(0.2)
            module.adapted = True
            came.append(module)
        when_imported("slow", callback)
        seen = []
        def use():
            import slow
            seen.append(slow.adapted)
        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(seen == [True] * 8, len(came))
    """
    assert said(place, script) == ["True 1"]


def test_a_module_that_another_thread_is_importing_is_waited_for(place: Path) -> None:
    (place / "slow.py").write_text("import builtins\nbuiltins.begun.set()\nbuiltins.go_on.wait()\nready = True\n")
    script = """
        import builtins, threading
        builtins.begun, builtins.go_on = threading.Event(), threading.Event()
        importing = threading.Thread(target=lambda: __import__("slow"))
        importing.start()
        begun.wait()
        threading.Timer(0.2, go_on.set).start()
        when_imported("slow", lambda module: came.append(module.ready))
        print(came, sys.meta_path == before)
        importing.join()
    """
    assert said(place, script) == ["[True] True"]


def test_a_module_whose_import_in_another_thread_fails_is_waited_for_on(place: Path) -> None:
    """The error is for those who import it."""
    (place / "slow.py").write_text("import builtins\nbuiltins.begun.set()\nbuiltins.go_on.wait()\nif builtins.fails: raise OSError('not now')\n")
    script = """
        import builtins, threading
        builtins.begun, builtins.go_on, builtins.fails = threading.Event(), threading.Event(), True
        def use():
            try:
                import slow
            except OSError as error:
                came.append(str(error))
        importing = threading.Thread(target=use)
        importing.start()
        begun.wait()
        threading.Timer(0.2, go_on.set).start()
        when_imported("slow", lambda module: came.append("slow"))
        importing.join()
        builtins.fails = False
        import slow
        print(came, sys.meta_path == before)
    """
    assert said(place, script) == ["['not now', 'slow'] True"]


def test_a_module_whose_own_code_asks_for_it_comes_when_it_is_done(place: Path) -> None:
    text = "from tack_memory._imports import when_imported\nimport sys\nwhen_imported(__name__, lambda module: sys.came.append(module.ready))\n"
    (place / "inward.py").write_text(text + "ready = True\n")
    (place / "failing.py").write_text(text + "import builtins\nif not hasattr(builtins, 'may_work'): raise OSError('not now')\nready = True\n")
    script = """
        import builtins, importlib.machinery
        sys.came = came
        import inward
        print(came, type(inward.__spec__) is importlib.machinery.ModuleSpec, sys.meta_path == before)
        importlib.reload(inward)
        print(came)
        try:
            import failing
        except OSError as error:
            print(error, came)
        builtins.may_work = True
        import failing
        print(came, sys.meta_path == before)
    """
    # What asked in the try that failed goes on waiting, and comes with the second one's.
    assert said(place, script) == ["[True] True True", "[True, True]", "not now [True, True]", "[True, True, True, True] True"]


@pytest.mark.parametrize("filters", ["default", "error"])
def test_a_callback_that_fails_does_not_break_the_import(place: Path, filters: str) -> None:
    """One warning, at the line that imports; where warnings are errors it is logged, and the import succeeds all the same."""
    script = """
        import logging, warnings
        logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
        warnings.showwarning = lambda message, category, filename, line, *rest: print(category.__name__, message, filename, line)
        def callback(module):
            raise LookupError("no seam")
        when_imported("later", callback)
        when_imported("later", came.append)
        import user
        print(came == [user.later], user.later.ready, sys.meta_path == before)
    """
    (place / "user.py").write_text("\nimport later\n")
    told, ended = said(place, script, PYTHONWARNINGS=filters)
    text = "after the import of later, tack_memory failed: LookupError: no seam"
    assert told == (f"RuntimeWarning {text} {place / 'user.py'} 2" if filters == "default" else f"WARNING {text}")
    assert ended == "True True True"


def test_a_strict_callback_fails_the_import_until_it_succeeds(place: Path) -> None:
    script = """
        def callback(module):
            came.append("tried")
            if came.count("tried") < 3:
                raise LookupError("no seam")
        when_imported("later", callback, strict=True)
        when_imported("later", lambda module: came.append(module.ready))
        for _ in range(3):
            try:
                import later
            except LookupError as error:
                print(error, "later" in sys.modules)
        print(came, sys.meta_path == before)
        try:
            when_imported("later", lambda module: 1 / 0, strict=True)
        except ZeroDivisionError:
            print(sys.meta_path == before)
    """
    assert said(place, script) == ["no seam False", "no seam False", "['tried', True, 'tried', 'tried'] True", "True"]


def test_ctrl_c_in_a_callback_is_not_lost(place: Path) -> None:
    script = """
        def callback(module):
            came.append("tried")
            if len(came) == 1:
                raise KeyboardInterrupt
        when_imported("later", callback)
        try:
            import later
        except KeyboardInterrupt:
            print("interrupted", "later" in sys.modules)
        import later
        print(came)
    """
    assert said(place, script) == ["interrupted False", "['tried', 'tried']"]
