"""Tests that need Tack; `make test-tack` runs them."""

from __future__ import annotations

import os

os.environ["TACK_CPU_THREADS"] = "1"  # sums in the same order each time
os.environ.update(TACK_MEMORY_AUTOINSTALL="0", TACK_MEMORY_CHECK="1")

from tack_memory.hosts import sim_library

os.environ["TACK_MEMORY_CUDA_LIBRARY"] = sim_library()  # test_cuda_buffers: Tack's CUDA backend runs on the software driver, and so do we
