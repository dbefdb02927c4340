"""What the examples say where a package that they need is not installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

EXTRAS = {"distributed": "dask", "mpi4py": "mpi"}


@contextmanager
def needed(*packages: str) -> Iterator[None]:
    """Around imports: a package of these that is not there ends the program with a line that says what to do."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        extras = ",".join(["demo", *(extra for name, extra in EXTRAS.items() if name in packages)])
        install = f"pip install '.[{extras}]'" + (" mpich" if "mpi4py" in packages else "")
        sys.exit(
            f"{sys.argv[0]}: {sys.executable} has no {' and no '.join(missing)}. In the checkout, `make demo` installs what the examples need, for "
            f"`.venv/bin/python {sys.argv[0]}`; in an environment of your own: {install}"
        )
    try:
        yield
    except ImportError as error:
        if not str(error.name).startswith("tack_memory._native"):
            raise
        sys.exit(f"{sys.argv[0]}: {error}")  # a checkout without its native part, or another Python's: the text says what to do
