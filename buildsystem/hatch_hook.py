"""Wheel hook: builds the native files and puts them into the wheel under their exact names."""

import os
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
import native
import toolchain


class NativeBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        if version == "editable":  # imports come from python/, so that is where the files must be
            if os.environ.get("TACK_MEMORY_BUILD_LATER") != "1":  # 'make develop' builds them as a step of its own
                toolchain.check_c()
                native.build(native.NATIVE)
            return
        toolchain.check_c()
        for f in native.build(native.ROOT / "build" / "wheel"):
            build_data["force_include"][str(f)] = f"tack_memory/_native/{f.name}"
