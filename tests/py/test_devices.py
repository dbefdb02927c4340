"""What names a device, and which device None is."""

from __future__ import annotations

import types
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy
import pytest
from support import NO_GPU, SIMULATED, run_python

import tack_memory
from tack_memory import _hosts
from tack_memory._native import sim_library_path
from tack_memory.hosts._names import functions
from tack_memory.hosts._protocol import HostAdapter


class TheirDevice:
    """A framework's own device object."""

    def __init__(self, name: str) -> None:
        self.name = name


def toy_host(name: str, current: str) -> Any:
    return types.SimpleNamespace(
        name=name,
        module=types.ModuleType(name),
        memory_error=None,
        current_device=lambda: current,
        device_of=lambda found: found.name if isinstance(found, TheirDevice) else None,
        buffers_of=lambda _: None,
    )


@pytest.fixture
def host() -> Iterator[Any]:
    plugged = toy_host("toy", "sim:1")
    _hosts.register(plugged)
    yield plugged
    _hosts.unregister(plugged)


class OneHost(HostAdapter):
    """As little of a plugged-in framework as its names need. It calls the kind "sim" "theirs"."""

    shape = "for tests"
    memory_error = None

    def __init__(self, current: str) -> None:
        super().__init__(ModuleType(f"host_on_{current}"))
        self.current = current

    @classmethod
    def missing_seams(cls, module: ModuleType) -> list[str]:
        return []

    def attach(self, **options: Any) -> None: ...

    def detach(self) -> None: ...

    def current_device(self) -> str:
        return self.current

    def own_device(self, obj: object) -> str | None:
        return None

    def own_name(self, name: str) -> str:
        return name.replace("theirs", "sim")

    def buffers_of(self, array: object) -> None:
        return None


def device_of(device: Any) -> str:
    return str(tack_memory.memory_info(device).device)


def test_every_way_to_name_a_device_agrees(host: Any) -> None:
    for device in (None, 1, numpy.int64(1), "sim", "sim:1", TheirDevice("sim:1")):
        assert device_of(device) == "sim:1", device
        assert tack_memory.allocate(0, device).device == "sim:1", device


def test_a_kind_is_its_current_device_or_else_its_first(host: Any) -> None:
    assert device_of("sim") == "sim:1"
    _hosts.unregister(host)
    assert device_of("sim") == "sim:0"
    assert device_of("cpu") == "cpu"


def test_an_int_is_an_ordinal_of_the_current_kind(host: Any) -> None:
    assert device_of(0) == "sim:0"
    assert device_of(1) == "sim:1"
    with pytest.raises(ValueError, match="sim:2"):
        device_of(2)


def test_none_is_the_current_device_of_the_only_host_at_each_call(host: Any) -> None:
    _hosts.unregister(host)
    assert device_of(None) != "sim:1"  # the default, which is remembered
    _hosts.register(host)
    assert device_of(None) == "sim:1"
    host.current_device = lambda: "sim:0"
    assert device_of(None) == "sim:0"
    assert tack_memory.allocate(0).device == "sim:0"


def test_where_hosts_disagree_a_name_is_asked_for(host: Any) -> None:
    other = toy_host("other", "cpu")
    _hosts.register(other)
    try:
        with pytest.raises(ValueError, match="name a device: toy uses sim:1, other uses cpu"):
            tack_memory.memory_info()
        other.current_device = lambda: "sim:1"
        assert device_of(None) == "sim:1"
    finally:
        _hosts.unregister(other)


def test_what_a_host_means_by_a_number_or_a_kind_does_not_depend_on_others(host: Any) -> None:
    """Where the host was called, or only one is on a kind, nothing is to be decided."""
    other = toy_host("other", "cpu")
    _hosts.register(other)
    try:
        assert device_of("sim") == "sim:1", "one host is on this kind"
        assert device_of("cpu") == "cpu" and device_of("sim-hip") == "sim-hip:0"
        with pytest.raises(ValueError, match="name a device"):
            device_of(0)
        other.current_device = lambda: "sim:0"
        with pytest.raises(ValueError, match="name a device: toy uses sim:1, other uses sim:0"):
            device_of("sim")
    finally:
        _hosts.unregister(other)


@pytest.mark.parametrize("on", ["sim:0", "sim:1"])
def test_the_names_of_a_host_mean_its_own_devices(host: Any, on: str) -> None:
    theirs = OneHost("sim-hip:0")
    _hosts.register(theirs)
    mine = OneHost(on)
    _hosts.register(mine)
    try:
        info = functions(mine)["memory_info"]
        asked = {None: on, 0: "sim:0", 1: "sim:1", numpy.int64(1): "sim:1", "sim": on, "theirs": on, "theirs:1": "sim:1", "sim-hip": "sim-hip:0", "cpu": "cpu"}
        assert {name: info(name).device for name in asked} == asked
        for wrong, error in ((2, ValueError), (-1, ValueError), (True, TypeError), (1.0, TypeError)):
            with pytest.raises(error):
                info(wrong)
        assert functions(theirs)["memory_info"](0).device == "sim-hip:0"
    finally:
        _hosts.unregister(mine)
        _hosts.unregister(theirs)


UNKNOWN = ["", "gpu", "sim:2", "sim:x", "SIM:0", "sim:-1", "sim: 0", "cuda:77", "cpu:0", "cpu:1", "level_zero:9", -1, 10**30]


@pytest.mark.parametrize("device", UNKNOWN)
def test_an_unknown_device_is_a_value_error_that_lists_the_known_ones(device: Any) -> None:
    with pytest.raises(ValueError, match=r"known devices: .*cpu") as error:
        tack_memory.memory_info(device)
    for name in SIMULATED:
        assert name in str(error.value), "each simulated device is told, named before or not"


def test_the_known_devices_are_all_told_whichever_were_used() -> None:
    done = run_python(
        """
        import tack_memory as tm
        for name in ("sim-hip:0", "sim:0"):
            tm.memory_info(name)
            try:
                tm.memory_info("nonsense")
            except ValueError as error:
                print(str(error).partition("known devices: ")[2])
        """,
        TACK_MEMORY_SIM="",
        **NO_GPU,
    )
    assert done.stdout.splitlines() == [
        "cpu, sim-hip:0; simulated, only when named: sim:0, sim-level_zero:0",
        "cpu, sim:0, sim-hip:0; simulated, only when named: sim-level_zero:0",
    ], done.stderr


@pytest.mark.parametrize("device", [True, False, 0.0, b"sim:0", ["sim:0"], object(), numpy.float32(0)])
def test_what_cannot_name_a_device_is_a_type_error(device: Any) -> None:
    with pytest.raises(TypeError, match="a device cannot be"):
        tack_memory.memory_info(device)


def test_every_result_names_its_device(any_device: str) -> None:
    assert tack_memory.memory_info(any_device).device == any_device
    assert tack_memory.allocate(8, any_device).device == any_device
    with tack_memory.memory_peak(any_device) as peak:
        pass
    assert peak.device == any_device and any_device in peak.by_device
    assert tack_memory.memory_report(any_device).device == any_device


def test_the_listed_devices_all_work() -> None:
    names = tack_memory.devices()
    after_the_gpus = names[names.index("sim:0") :]
    assert after_the_gpus[:3] == ["sim:0", "sim:1", "cpu"]
    assert all(name.startswith("sim-") for name in after_the_gpus[3:]), "simulated devices of other vendors are listed where they were named"
    assert device_of(None) == names[0], "the default kind comes first"
    assert [device_of(name) for name in names] == names


def test_registering_a_host_twice_changes_nothing(host: Any) -> None:
    _hosts.register(host)
    assert _hosts.registered() == [host]
    _hosts.unregister(host)
    assert _hosts.registered() == []
    _hosts.unregister(host)
    _hosts.register(host)


def script(code: str, **environment: str) -> str:
    done = run_python(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_host_and_without_a_gpu_the_default_is_the_cpu() -> None:
    assert script("import tack_memory as tm; print(tm.memory_info().device, tm.allocate(1).device)", TACK_MEMORY_SIM="", **NO_GPU) == "cpu cpu"


def test_nobody_measures_a_simulation_by_accident() -> None:
    code = """
        import tack_memory as tm
        print(tm.memory_info().device, *tm.devices())
        tm.memory_info("sim:0")
        print(tm.memory_info().device, *tm.devices())
        """
    assert script(code, TACK_MEMORY_SIM="", **NO_GPU).splitlines() == ["cpu cpu", "cpu cpu sim:0"]
    assert script("import tack_memory as tm; tm.memory_info('sim:0'); print(tm.memory_info().device)", TACK_MEMORY_SIM="", **NO_GPU) == "cpu"


def test_a_switch_that_asks_for_simulated_devices_makes_them_the_default_where_there_is_no_gpu() -> None:
    assert script("import tack_memory as tm; print(tm.memory_info().device, tm.memory_info(1).device)", **NO_GPU) == "sim:0 sim:1"


def test_a_cuda_device_that_works_comes_first() -> None:
    """The software driver in place of libcuda.so.1: the real backend, and so a device "cuda:0" that works."""
    environment = {**NO_GPU, "TACK_MEMORY_CUDA_LIBRARY": sim_library_path(), "TACK_MEMORY_SIM": "", "TMSOFT_CAPACITY": str(32 << 20), "TMSOFT_DEVICES": "2"}
    code = "import tack_memory as tm; print(tm.memory_info().device, tm.memory_info(1).device, tm.memory_info('cuda').device, *tm.devices())"
    assert script(code, **environment) == "cuda:0 cuda:1 cuda:0 cuda:0 cuda:1 cpu"


CONTEXTS = {
    "sim": ("cuDevicePrimaryCtxRetain", "cuCtxCreate_v2", "cuMemGetInfo_v2"),
    "sim-hip": ("hipMemGetInfo", "hipStreamCreateWithFlags", "hipMallocAsync", "hipMalloc"),
    "sim-level_zero": ("zeContextCreate", "zeCommandListCreateImmediate"),
}
"""The calls that make a context. HIP has none of its own for that: those of ours that do so by the way."""


def test_asking_about_an_unused_device_creates_no_context(simulated: str) -> None:
    code = f"""
        import tack_memory as tm
        from support import SoftDriver
        soft = SoftDriver()
        contexts = lambda: sum(map(soft.calls, {CONTEXTS[simulated]}))
        info = tm.memory_info("sim:0")
        tm.devices(), tm.memory_report("sim:0"), tm.set_memory_budget("1 MiB", "sim:0"), tm.reset_peak_memory("sim:0")
        with tm.memory_peak("sim:0"):
            pass
        print(info.device_free, info.device_total, contexts())
        buffer = tm.allocate(1, "sim:0")
        print(tm.memory_info("sim:0").device_free is None, contexts() > 0)
        """
    free = 256 << 20 if simulated == "sim-level_zero" else None  # which tells it without a context
    assert script(code, simulated=simulated).splitlines() == [f"{free} {256 << 20} 0", "False True"]


def test_a_budget_that_cannot_be_had_is_asked_for_again_by_the_next_use() -> None:
    """The device is open by then, and must not be used without the budget that the switch asks for."""
    code = """
        import tack_memory as tm
        from tack_memory import _devices
        parse, tries = _devices.parse_size, []
        def fail(*arguments, **named):
            tries.append(arguments[0])
            if len(tries) < 4:
                raise ValueError("not today")
            return parse(*arguments, **named)
        _devices.parse_size = fail
        for use in (lambda: tm.allocate(1, "sim:0"), lambda: tm.memory_info("sim:0"), lambda: tm._native._fast.counters("sim:0")):
            try:
                use()
            except ValueError as error:
                print(error)
        _devices.parse_size = fail
        print(tm.allocate(1, "sim:0").nbytes, tm.get_memory_budget("sim:0"), len(tries))
        """
    told = "TACK_MEMORY_BUDGET: not today"
    assert script(code, TACK_MEMORY_BUDGET="50%").splitlines() == [told, told, told, f"1 {128 << 20} 4"]
