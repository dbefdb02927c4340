"""Plug tack_memory into a framework, here minihost: its arrays are counted, and spilled when they are more than the budget.

python examples/plugged_in.py           over a software driver, which keeps "device" memory in host memory
python examples/plugged_in.py cuda:0    on a GPU: CUDA's, HIP's or Level Zero's
"""

import sys

from needed import needed

with needed("numpy", "tack_memory"):
    import minihost as mh
    import numpy as np

    import tack_memory
    from tack_memory.hosts import sim_library

if {"-h", "--help"} & set(sys.argv):
    sys.exit(print(__doc__))
try:
    if sys.argv[1:]:
        mh.init(sys.argv[1])
    else:
        mh.init("cuda:0", library=sim_library("sim:0"), host_readable=True)  # the very file that the device "sim:0" runs on
except (ValueError, mh.DriverError) as error:  # no such device, or no driver for it
    sys.exit(f"plugged_in.py: {error}. Without a device's name it runs over a software driver; python -m tack_memory doctor says which GPUs can be used")
tack_memory.install(mh)


@mh.kernel(writes="total")
def add_to(total: np.ndarray, a: np.ndarray) -> None:
    total += a


mh.set_memory_budget("64 MiB")  # type: ignore[attr-defined]  # install() has added it
arrays = [mh.full(2**20, float(n)) for n in range(12)]  # 96 MiB
for a, b in zip(arrays, arrays[1:], strict=False):
    add_to(b, a)  # both are on the device while the kernel runs, whatever had to leave for them

print(mh.memory_report())  # type: ignore[attr-defined]
print("last:", arrays[-1][0], "of", sum(range(12)))
