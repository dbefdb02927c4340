"""What can go wrong on a device."""


class DriverError(RuntimeError):
    """A call of the driver failed; `code` is the driver's number."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call} failed: {name} ({code})")
        self.code = code


class DeviceMemoryError(RuntimeError):
    """The device has no room for an array."""
