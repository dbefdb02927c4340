"""What the clients' scripts share: the software driver's controls, in the process that the client has loaded it into."""

import ctypes

# The client loads it by the same name, so this is the same library.
_driver = ctypes.CDLL("libcuda.so.1")
_driver.tmsoft_get.restype = ctypes.c_longlong
_driver.tmsoft_calls.restype = ctypes.c_ulong
_driver.tmsoft_set.argtypes = [ctypes.c_char_p, ctypes.c_longlong]
_driver.tmsoft_fail.argtypes = [ctypes.c_char_p, ctypes.c_ulong, ctypes.c_int]


def get(key: str) -> int:
    return _driver.tmsoft_get(key.encode())


def calls(function: str) -> int:
    return _driver.tmsoft_calls(function.encode())


def fail(function: str, nth: int, code: int) -> None:
    if _driver.tmsoft_fail(function.encode(), nth, code):
        raise ValueError(f"the driver exports no {function}")


def same(got, want, what: str) -> None:
    if got != want:
        raise AssertionError(f"{what}: {got!r}, not {want!r}")
