"""Intel's own Sysman bindings for Python, over the software driver.

    pyzes_client.py PYZES LIBRARY

They declare what no header that we can fetch has (zesInit and what came after it), and find the loader at a fixed place, which is replaced by LIBRARY here.
Their structures must have our sizes and offsets, and what they read must be what the driver was told to say.
"""

import ctypes
import importlib.util
import os
import pathlib
import re
import sys
import unittest.mock
from types import ModuleType

TABLES = pathlib.Path(__file__).resolve().parent.parent
CAPACITY = 3 << 30
TAKEN = 1 << 30


def load(path: str, library: str) -> ModuleType:
    """The module, with LIBRARY in place of the loader."""
    spec = importlib.util.spec_from_file_location("pyzes", path)
    if spec is None or spec.loader is None:
        sys.exit(f"pyzes_client.py: {path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    opened = ctypes.CDLL(library)
    with unittest.mock.patch.object(ctypes, "CDLL", lambda name: opened):
        spec.loader.exec_module(module)
    return module


def check_layouts(pyzes: ModuleType) -> int:
    """Compares every structure that both know; returns how many facts agreed."""
    table, agreed = (TABLES / "values.def").read_text(), 0
    for name, size in re.findall(r"\bS\(\w+,(\w+),(\d+)\)", table):
        structure = getattr(pyzes, name, None)
        if structure is None:
            continue
        if ctypes.sizeof(structure) != int(size):
            sys.exit(f"pyzes_client.py: {name} is {ctypes.sizeof(structure)} bytes in pyzes, {size} here")
        agreed += 1
    for name, member, offset in re.findall(r"\bO\(\w+,(\w+),(\w+),(\d+)\)", table):
        structure = getattr(pyzes, name, None)
        if structure is None:
            continue
        if getattr(structure, member).offset != int(offset):
            sys.exit(f"pyzes_client.py: {name}.{member} is at {getattr(structure, member).offset} in pyzes, at {offset} here")
        agreed += 1
    return agreed


def check(code: int, what: str) -> None:
    if code:
        sys.exit(f"pyzes_client.py: {what} returned {code:#x}")


def read_memory(pyzes: ModuleType) -> tuple[int, int]:
    """Free and physical bytes of the one device, asked for as pyzes's own example does, and by the device's UUID."""
    check(pyzes.zesInit(0), "zesInit")
    count = ctypes.c_uint32(1)
    driver = (pyzes.zes_driver_handle_t * 1)()
    check(pyzes.zesDriverGet(ctypes.byref(count), driver), "zesDriverGet")
    device = (pyzes.zes_device_handle_t * 1)()
    check(pyzes.zesDeviceGet(driver[0], ctypes.byref(count), device), "zesDeviceGet")

    facts = pyzes.zes_device_properties_t()
    facts.stype = pyzes.ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES
    check(pyzes.zesDeviceGetProperties(device[0], ctypes.byref(facts)), "zesDeviceGetProperties")
    uuid = pyzes.zes_uuid_t.from_buffer_copy(facts.core.uuid)
    found, on_subdevice, subdevice = pyzes.zes_device_handle_t(), pyzes.ze_bool_t(), ctypes.c_uint32()
    code = pyzes.zesDriverGetDeviceByUuidExp(driver[0], uuid, ctypes.byref(found), ctypes.byref(on_subdevice), ctypes.byref(subdevice))
    check(code, "zesDriverGetDeviceByUuidExp")
    if found.value != ctypes.cast(device[0], ctypes.c_void_p).value or on_subdevice.value:
        sys.exit("pyzes_client.py: the UUID leads to another device")

    module = (pyzes.zes_mem_handle_t * 1)()
    check(pyzes.zesDeviceEnumMemoryModules(found, ctypes.byref(count), module), "zesDeviceEnumMemoryModules")
    properties, state = pyzes.zes_mem_properties_t(), pyzes.zes_mem_state_t()
    properties.stype, state.stype = pyzes.ZES_STRUCTURE_TYPE_MEM_PROPERTIES, pyzes.ZES_STRUCTURE_TYPE_MEM_STATE
    check(pyzes.zesMemoryGetProperties(module[0], ctypes.byref(properties)), "zesMemoryGetProperties")
    check(pyzes.zesMemoryGetState(module[0], ctypes.byref(state)), "zesMemoryGetState")
    return state.free, properties.physicalSize


def main() -> None:
    os.environ["TMSOFT_CAPACITY"], os.environ["TMSOFT_TAKEN"] = str(CAPACITY), str(TAKEN)
    pyzes = load(*sys.argv[1:3])
    if (agreed := check_layouts(pyzes)) < 20:
        sys.exit(f"pyzes_client.py: only {agreed} facts were compared: this check no longer understands pyzes")
    if (got := read_memory(pyzes)) != (CAPACITY - TAKEN, CAPACITY):
        sys.exit(f"pyzes_client.py: free and physical bytes are {got}, not {(CAPACITY - TAKEN, CAPACITY)}")
    print(f"agrees with pyzes: {agreed} sizes and offsets, and what it reads")


if __name__ == "__main__":
    main()
