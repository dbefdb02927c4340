"""Which limits hold for a test, and what is measured: `limit_device_memory`, `device_memory_limit`, the fixture `device_memory`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

import pytest
from pytest_project import Project

WORDS = "passed|failed|error|errors|xfailed|rerun|skipped"


def ended(output: str) -> dict[str, int]:
    """How many tests ended how, of pytest's last line."""
    return {word: int(number) for number, word in re.findall(rf"(\d+) ({WORDS})\b", output.splitlines()[-1])}


def failures(output: str) -> dict[str, str]:
    """By the test's name (of one whose set-up failed as well), the first line of what it says."""
    return {test.rpartition("::")[2]: text for test, text in re.findall(r"^(?:FAILED|ERROR) (\S+) - (?:\w+: )?(.*)$", output, re.MULTILINE)}


def over(output: str) -> dict[str, str]:
    """By the test's name, what it held and its limit, as "2 KiB > 1 KiB (own, sim:0)"."""
    found = {}
    for test, text in failures(output).items():
        told = re.fullmatch(r"device memory: (.*) is .* over the limit of (.*)", text)
        assert told, (test, text)
        found[test] = f"{told[1]} > {told[2]}"
    return found


@pytest.fixture(scope="module")
def inclusive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What one run says of tests at their limit and one byte below: one process for all of them."""
    project = Project(tmp_path_factory.mktemp("limits"))
    project.configure("device_memory_limit = 1 MiB, device=sim:0")
    project.write("test_limits.py", LIMITS)
    project.write("test_module.py", MODULE)
    project.write("test_wrong.py", WRONG)
    yield project.run("-q", "-rfE").stdout


LIMITS = """\
    import unittest
    import pytest
    import tack_memory as tm

    def limit(size, **more):
        return pytest.mark.limit_device_memory(size, device="sim:0", **more)

    def hold(nbytes):
        return tm.allocate(nbytes, "sim:0")

    @limit("24 MiB")
    def test_at_the_limit():
        hold(24 * 2**20)

    @limit(24 * 2**20 - 1)
    def test_one_byte_over():
        hold(24 * 2**20)

    @limit("24 MB")
    def test_MB_is_not_MiB():
        hold(24 * 2**20)

    @limit("2 MiB", kind="own")
    @limit("5 MiB", kind="footprint")
    @limit(0, kind="leak")
    def test_several_limits_pass():
        hold("2 MiB")

    kept = []

    @limit("2 MiB")
    @limit(0, kind="leak")
    def test_several_limits_of_which_one_fails():
        kept.append(hold("2 MiB"))

    def test_the_default_at_its_limit():
        hold("1 MiB")

    def test_the_default_one_byte_over():
        hold(2**20 + 1)

    @limit("2 MiB")
    def test_a_marker_overrides_the_default():
        hold("2 MiB")

    @limit(None)
    def test_a_marker_takes_the_default_away():
        hold("2 MiB")

    @limit("1 KiB", kind="leak")
    def test_a_marker_of_another_kind_leaves_the_default():
        hold("2 MiB")

    @pytest.mark.parametrize("nbytes", [
        pytest.param(2**20 + 1, id="default"),
        pytest.param(2 * 2**20, id="raised", marks=limit("2 MiB")),
        pytest.param(2, id="lowered", marks=limit("1 B")),
    ])
    def test_parameters(nbytes):
        hold(nbytes)

    @limit("1 KiB")
    @pytest.mark.parametrize("nbytes", [pytest.param(2048, id="functions"), pytest.param(2048, id="own", marks=limit("2 KiB"))])
    def test_parameters_are_nearest(nbytes):
        hold(nbytes)

    @limit("1 KiB")
    class TestClass:
        def test_of_the_class(self):
            hold(1025)

        @limit("2 KiB")
        def test_of_its_own(self):
            hold(2048)

    @limit("1 KiB")
    class TestCaseOfUnittest(unittest.TestCase):
        def test_unittest(self):
            hold(1025)

    @pytest.fixture
    def big():
        return hold("8 MiB")

    @limit("1 KiB")
    def test_set_up_is_apart(big):
        hold("1 KiB")

    @limit(8 * 2**20 + 1024, kind="peak")
    def test_set_up_is_in_the_peak(big):
        hold("2 KiB")

    @pytest.fixture
    def garbage():
        yield
        import gc
        gc.disable()
        cycle = [hold("1 MiB")]
        cycle.append(cycle)

    def test_whose_teardown_makes_garbage(garbage): ...

    @limit(2 * 2**20 + 1024, kind="peak")  # what test_several_limits_of_which_one_fails keeps
    def test_garbage_of_earlier_tests_is_collected():
        hold("1 KiB")

    @limit(0, kind="leak")
    def test_a_cycle_is_no_leak():
        import gc
        cycle = [hold("1 MiB")]
        cycle.append(cycle)
        gc.collect()  # it is old now: no collection of what is young finds it
        del cycle

    def test_no_memory():
        import gc
        gc.enable()

    @limit("1 KiB")
    @pytest.mark.xfail(strict=True)
    def test_an_expected_failure():
        hold("2 KiB")

    @limit(0)
    def test_its_own_error_is_what_is_told():
        hold("2 KiB")
        raise KeyError("its own")

    @limit(0)
    def test_a_skip_is_a_skip():
        hold("2 KiB")
        pytest.skip("in the middle")
    """

MODULE = """\
    import pytest
    import tack_memory as tm

    pytestmark = pytest.mark.limit_device_memory("1 KiB", "sim:0")

    def test_of_the_module():
        tm.allocate(1025, "sim:0")
    """

WRONG = """\
    import pytest
    import tack_memory as tm

    limit = pytest.mark.limit_device_memory

    @limit("24 MBanana")
    def test_size(): ...

    @limit("2G")
    def test_unit(): ...

    @limit(1.5)
    def test_type(): ...

    @limit("1 MiB", device="cuda:77x")
    def test_device(): ...

    @limit("1 MiB", kind="most")
    def test_kind(): ...

    @limit()
    def test_no_size(): ...

    @limit("1 MiB", size="2 MiB")
    def test_twice(): ...

    @limit("1 MiB", where="sim:0")
    def test_unknown_argument(): ...

    @limit("150%", device="sim:0")
    def test_more_than_all(): ...

    @limit("50%", device="sim:0")
    def test_a_share_of_the_device():
        tm.allocate("128 MiB", "sim:0")

    def test_device_memory_says_what_is_wrong(device_memory):
        for call in (lambda: device_memory.assert_below("24 MBanana"), lambda: device_memory.peak(kind="most"), lambda: device_memory.peak("sim")):
            try:
                call()
            except ValueError as wrong:
                print(wrong)
            else:
                assert call is not None

    """


def test_the_limit_is_inclusive_and_units_differ(inclusive: str) -> None:
    told = over_of_limits(inclusive)
    assert "test_at_the_limit" not in told
    assert told["test_one_byte_over"] == "24 MiB > 24 MiB (own, sim:0)"
    assert told["test_MB_is_not_MiB"] == "24 MiB > 22.9 MiB (own, sim:0)"


def over_of_limits(output: str) -> dict[str, str]:
    kept = [line for line in output.splitlines() if "test_wrong" not in line and "KeyError" not in line]
    return over("\n".join(kept))


def test_which_limits_hold(inclusive: str) -> None:
    """Several on one test; the nearest of one kind: parameters, function, class, module, configuration file. Set-up memory is apart."""
    assert over_of_limits(inclusive) == {
        "test_one_byte_over": "24 MiB > 24 MiB (own, sim:0)",
        "test_MB_is_not_MiB": "24 MiB > 22.9 MiB (own, sim:0)",
        "test_several_limits_of_which_one_fails": "2 MiB > 0 B (leak, sim:0)",
        "test_the_default_one_byte_over": "1 MiB > 1 MiB (own, sim:0)",
        "test_a_marker_of_another_kind_leaves_the_default": "2 MiB > 1 MiB (own, sim:0)",
        "test_parameters[default]": "1 MiB > 1 MiB (own, sim:0)",
        "test_parameters[lowered]": "2 B > 1 B (own, sim:0)",
        "test_parameters_are_nearest[functions]": "2 KiB > 1 KiB (own, sim:0)",
        "test_of_the_class": "1 KiB > 1 KiB (own, sim:0)",
        "test_unittest": "1 KiB > 1 KiB (own, sim:0)",
        "test_set_up_is_in_the_peak": "10 MiB > 8 MiB (peak, sim:0)",
        "test_of_the_module": "1 KiB > 1 KiB (own, sim:0)",
    }
    for where in ("the test", "these parameters", "class TestClass", "class TestCaseOfUnittest", "module test_module.py"):
        assert f"           limit_device_memory of {where}\n" in inclusive
    assert "           device_memory_limit in pytest.ini\n" in inclusive
    for more in ('limit_device_memory("1.01 KiB", device="sim:0") on module test_module.py', 'limit_device_memory("2 B", device="sim:0") on these parameters'):
        assert f"  allow    @pytest.mark.{more}\n" in inclusive
    assert failures(inclusive)["test_its_own_error_is_what_is_told"] == "'its own'"
    assert {"xfailed": 1, "skipped": 1}.items() <= ended(inclusive).items()


def test_a_wrong_limit_is_an_error_of_its_test(inclusive: str) -> None:
    """When it is set up, in the words of whoever reads sizes, devices and kinds; other tests run."""
    told = failures("\n".join(line for line in inclusive.splitlines() if "test_wrong.py" in line))
    found = {test: text for test, text in told.items()}
    begin = {
        "test_size": "limit_device_memory: '24 MBanana' is not a size: unknown unit 'MBanana'",
        "test_unit": 'limit_device_memory: \'2G\' can be read in two ways: "2 GB" (2,000,000,000 bytes) or "2 GiB"',
        "test_type": "limit_device_memory: a size cannot be the float 1.5",
        "test_device": "limit_device_memory: unknown device 'cuda:77x'; known devices: ",
        "test_kind": "limit_device_memory: kind must be one of own, delta, peak, footprint, leak, not 'most'",
        "test_no_size": 'limit_device_memory: missing 1 required positional argument: \'size\'; it is limit_device_memory("24 MiB", device=None, kind="own")',
        "test_twice": "limit_device_memory: got multiple values for argument 'size'; it is ",
        "test_unknown_argument": "limit_device_memory: got an unexpected keyword argument 'where'; it is ",
        "test_more_than_all": "limit_device_memory: '150%' is more than all",
    }
    assert set(found) == set(begin)
    for test, text in begin.items():
        assert found[test].startswith(text[: len(found[test].removesuffix("..."))]), (test, found[test])
        assert f"ERROR at setup of {test} " in inclusive


ELSEWHERE = """\
    import pytest
    import tack_memory as tm

    @pytest.mark.limit_device_memory("1 KiB")
    def test_on_another_device():
        tm.allocate("2 KiB", "sim:0")

    @pytest.mark.limit_device_memory("1 KiB")
    def test_on_both():
        tm.allocate("2 KiB", "sim:0"), tm.allocate(1, "cpu")

    @pytest.mark.limit_device_memory("1 KiB")
    def test_on_none(): ...

    @pytest.mark.limit_device_memory("1 KiB", device="cpu")
    def test_that_names_its_device():
        tm.allocate("2 KiB", "sim:0")
    """


def test_a_limit_that_looks_at_a_device_which_is_not_used_says_so(project: Project) -> None:
    """The current device is the CPU where there is no GPU: such a limit could not fail, and nobody would know."""
    project.write("test_elsewhere.py", ELSEWHERE)
    done = project.run("-q", "-rf", TACK_MEMORY_SIM="")
    assert failures(done.stdout).keys() == {"test_on_another_device"}, done.stdout  # where warnings are errors
    assert (
        "pytest.PytestWarning: limit_device_memory of the test names no device, so it looks at the current one, cpu, of which the test used nothing; "
        "it used 2 KiB on sim:0. Name the device: device='sim:0'"
    ) in done.stdout
    assert ended(project.run("-q", "-W", "default", TACK_MEMORY_SIM="").stdout) == {"passed": 4}


RERUN = """\
    import pytest
    import tack_memory as tm

    runs = []

    @pytest.mark.flaky(reruns=2)
    @pytest.mark.limit_device_memory("3.1 MiB", device="sim:0")
    @pytest.mark.limit_device_memory("3.1 MiB", device="sim:0", kind="peak")
    @pytest.mark.limit_device_memory("2 MiB", device="sim:0", kind="delta")
    def test_that_needs_three_runs():
        buffer = tm.allocate(f"{5 - len(runs)} MiB", "sim:0")
        runs.append(tm.allocate("1 KiB", "sim:0"))
        assert len(runs) >= 3
    """


def test_each_rerun_starts_anew(project: Project) -> None:
    """Three runs of 5, 4 and 3 MiB: only the last is what counts. JUnit has the properties of each, one after the other."""
    project.write("test_rerun.py", RERUN.replace('"2 MiB", device="sim:0", kind="delta"', '"4 MiB", device="sim:0", kind="delta"'))
    done = project.run("-q", "--junitxml=junit.xml", "-n", "1", "--device-memory-report-json=memory.json")
    assert ended(done.stdout) == {"passed": 1, "rerun": 2}, done.stdout
    assert re.findall(r'name="device_memory\[sim:0\].own" value="(\d+)"', (project.folder / "junit.xml").read_text()) == ["5243904", "4195328", "3146752"]
    assert '"own": 3146752' in (project.folder / "memory.json").read_text()
    project.write("test_rerun.py", RERUN)
    done = project.run("-q", "-rf")
    assert over(done.stdout) == {"test_that_needs_three_runs": "3 MiB > 2 MiB (delta, sim:0)"}


ASYNC = """\
    import asyncio
    import pytest
    import tack_memory as tm

    @pytest.fixture(scope="session")
    def anyio_backend():
        return "asyncio"

    async def works(nbytes):
        kept = tm.allocate(nbytes, "sim:0")
        await asyncio.sleep(0)
        return kept

    @MARK
    @pytest.mark.limit_device_memory("3 MiB", device="sim:0")
    async def test_at_its_limit():
        one, two = await asyncio.gather(works("1 MiB"), works("2 MiB"))

    @MARK
    @pytest.mark.limit_device_memory("2 MiB", device="sim:0")
    async def test_over_it(device_memory):
        one, two = await asyncio.gather(works("1 MiB"), works("2 MiB"))
        assert device_memory.peak("sim:0") == 3 * 2**20
        await asyncio.sleep(0)

    @MARK
    @pytest.mark.limit_device_memory(0, device="sim:0", kind="leak")
    async def test_nothing_is_left():
        await works("1 MiB")
    """


@pytest.mark.parametrize("library", ["asyncio", "anyio"])
def test_async_tests(project: Project, library: str) -> None:
    project.write("test_async.py", ASYNC.replace("MARK", f"pytest.mark.{library}"))
    if library == "asyncio":
        project.write(
            "pytest.ini", "[pytest]\naddopts = --strict-config --strict-markers\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
        )
    done = project.run("-q", "-rf")
    assert over(done.stdout) == {"test_over_it": "3 MiB > 2 MiB (own, sim:0)"}, done.stdout
    number = dedent(ASYNC).splitlines().index('    kept = tm.allocate(nbytes, "sim:0")') + 1
    when = f'  when     test_async.py:{number} in works: kept = tm.allocate(nbytes, "sim:0")\n           in a task or a thread that the test had started\n'
    assert when in done.stdout


FIXTURE = """\
    import pytest
    import tack_memory as tm

    MIB = 2**20
    kept = []

    @pytest.fixture
    def mesh(device_memory):
        buffer = tm.allocate("4 MiB", "sim:0")
        assert device_memory.peak("sim:0") == 4 * MIB, "while it is set up: of the set-up"
        return buffer

    @pytest.fixture
    def watched(device_memory):
        yield
        assert device_memory.peak("sim:0") == 3 * MIB and device_memory.leaked == 0, "when it has ended: of the body"

    def test_figures(mesh, device_memory):
        assert device_memory.peak("sim:0") == 0
        one = tm.allocate("1 MiB", "sim:0")
        two = tm.allocate("2 MiB", "sim:0")
        del one
        assert device_memory.peak("sim:0") == 3 * MIB
        assert device_memory.peak("sim:0", kind="peak") == 7 * MIB
        assert device_memory.peak("sim:0", kind="leak") == 2 * MIB
        assert device_memory.peak("cpu") == 0
        host = tm.allocate("5 MiB", "cpu")
        assert device_memory.peak("cpu") == 5 * MIB
        device_memory.assert_below("3 MiB", "sim:0")
        with pytest.raises(AssertionError, match="device memory: 3 MiB is 1 MiB over the limit of 2 MiB"):
            device_memory.assert_below("2 MiB", "sim:0")
        with pytest.raises(TypeError):
            device_memory.assert_below(1.5)

    def test_after_the_body(watched):
        tm.allocate("3 MiB", "sim:0")

    def test_leaked(device_memory):
        with tm.memory_peak() as here:
            assert here.device == "sim:0", "the current device: there is no GPU, and simulated ones were asked for"
        one = tm.allocate("1 MiB")
        assert device_memory.leaked == MIB
        del one
        assert device_memory.leaked == 0

    def test_asked_for_in_the_middle(request):
        one = tm.allocate("1 MiB", "sim:0")
        device_memory = request.getfixturevalue("device_memory")
        two = tm.allocate("2 MiB", "sim:0")
        assert device_memory.peak("sim:0") == 2 * MIB

    @pytest.fixture
    def broken(device_memory):
        tm.allocate("1 MiB", "sim:0")
        raise OSError("the set-up fails")

    def test_whose_set_up_fails(broken): ...

    def test_no_scope_is_left_open():
        assert not any(tm._fast.still_open().values()), tm._fast.still_open()
    """


def test_the_fixture(project: Project) -> None:
    project.write("test_fixture.py", FIXTURE)
    done = project.run("-q", "-rfE", **NO_GPU)
    assert ended(done.stdout) == {"passed": 5, "error": 1}, done.stdout
    assert failures(done.stdout) == {"test_whose_set_up_fails": "the set-up fails"}


NO_GPU = {f"TACK_MEMORY_{name}_LIBRARY": "/nonexistent/library.so" for name in ("CUDA", "HIP", "LEVEL_ZERO")}


def test_only_a_test_that_asks_is_measured(project: Project) -> None:
    """And one that is deselected asks for nothing: then tack_memory is not imported. A fixture that is asked for late is there all the same."""
    body = """\
        import sys
        import pytest

        def test_plain():
            assert "tack_memory" not in sys.modules

        @pytest.mark.limit_device_memory("1 MiB", device="sim:0")
        def test_marked():
            assert "tack_memory" in sys.modules

        def test_late(request):
            measured = request.config.pluginmanager.has_plugin("tack_memory_measuring")
            assert request.getfixturevalue("device_memory").peak("cpu") == 0
            assert measured == ("test_marked" in {item.name for item in request.session.items})
        """
    project.write("test_a.py", dedent(body))
    assert ended(project.passes("-q", "-k", "not marked")) == {"passed": 2}
    assert ended(project.passes("-q", "-k", "not plain")) == {"passed": 2}


CONFIGURATION = [
    ("24 MBanana", "'24 MBanana' is not a size: unknown unit 'MBanana'"),
    ("1 MiB, most", "'1 MiB, most': after the size comes device=... or kind=..., each once, not 'most'"),
    ("1 MiB, kind=most", "'1 MiB, kind=most': kind must be one of own, delta, peak, footprint, leak, not 'most'"),
    ("1 MiB, kind=own, kind=own", "'1 MiB, kind=own, kind=own': after the size comes"),
]


def test_a_wrong_configuration_is_a_usage_error(project: Project) -> None:
    project.write("test_a.py", "def test_a(): ...\n")
    runs = ["import sys, pytest"]
    for line, _ in CONFIGURATION:
        runs.append(f"print(int(pytest.main(['--override-ini=device_memory_limit={line}']))); print('=====', file=sys.stderr, flush=True)")
    done = project.python("-c", "\n".join(runs))
    assert done.stdout.split() == ["4"] * len(CONFIGURATION), done.stdout + done.stderr
    for (line, text), told in zip(CONFIGURATION, done.stderr.split("=====\n"), strict=False):
        assert f"device_memory_limit: {text}" in told and "Traceback" not in told, line


def test_a_default_of_several_kinds_on_a_device_that_is_not_there(project: Project) -> None:
    project.configure("device_memory_limit =", "    1 KiB, device=sim:0", "    0, kind=leak, device=sim:0")
    project.write("test_a.py", "import tack_memory as tm\nkept = []\ndef test_a():\n    kept.append(tm.allocate(512, 'sim:0'))\n")
    assert over(project.run("-q", "-rf").stdout) == {"test_a": "512 B > 0 B (leak, sim:0)"}
    project.configure("device_memory_limit = 1 KiB, device=cuda:9")
    done = project.run("-q", "-rE", **NO_GPU)
    assert "limit_device_memory: unknown device 'cuda:9'" in done.stdout and ended(done.stdout) == {"error": 1}
