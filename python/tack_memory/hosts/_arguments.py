"""What a call of a host's function is given, found as the host's own code finds it: by position, by name, or left out."""

from __future__ import annotations

from inspect import Parameter, signature

from ._room import bytes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Argument:
    """One parameter of a function, wherever it stands in the list."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        parameters = signature(function).parameters
        parameter = parameters.get(name)
        self._name = name
        self._position = list(parameters).index(name) if parameter is not None and parameter.kind in _BY_POSITION else None
        self._default = None if parameter is None or parameter.default is Parameter.empty else parameter.default

    def of(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """What a call gives for it; the default where it is left out, and None where there is none: the function itself refuses such a call."""
        if self._position is not None and self._position < len(args):
            return args[self._position]
        return named.get(self._name, self._default)


class Size:
    """How many bytes a call of a function allocates that has the parameters `dtype` and `shape`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._dtype, self._shape = Argument(function, "dtype"), Argument(function, "shape")

    def of(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> int:
        """0: it does not say."""
        shape = self._shape.of(args, named)
        return 0 if shape is None else bytes_of(self._dtype.of(args, named), shape)
