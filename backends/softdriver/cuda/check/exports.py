"""Checks what the built library exports: the table's functions and the control functions, nothing else, and none of the old names.

    exports.py LIBRARY cuda.h...

Old names are those that cuda.h declares only for programs of its own (under __CUDA_API_VERSION_INTERNAL): the 32-bit ABI of CUDA 2 and the like.
A program that looks one of them up by mistake must fail here.
"""

import os
import pathlib
import re
import subprocess
import sys

TABLES = pathlib.Path(__file__).resolve().parent.parent
CONTROL = {"tmsoft_set", "tmsoft_get", "tmsoft_fail", "tmsoft_calls", "tmsoft_reset"}
# The old names that clients look up in the library itself: the one through which they ask for others, and the UUID of a whole GPU, whose
# newer version tells that of a part.
WANTED_OLD = {"cuGetProcAddress", "cuDeviceGetUuid"}


def declared(header: str, *defines: str) -> set[str]:
    text = subprocess.run([os.environ.get("CC", "cc"), "-E", *defines, header], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"CUresult\s+(cu\w+)\s*\(", text))


def main() -> None:
    library, headers = sys.argv[1], sys.argv[2:]
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[-1] for line in symbols.splitlines()}
    wanted = set(re.findall(r"^F\((\w+),", (TABLES / "functions.def").read_text(), re.MULTILINE)) | CONTROL
    if exported != wanted:
        sys.exit(f"exports.py: not exported: {sorted(wanted - exported)}; exported by mistake: {sorted(exported - wanted)}")
    for header in headers:
        current = declared(header)
        old = declared(header, "-D__CUDA_API_VERSION_INTERNAL=1") - current
        if len(old) < 20:
            sys.exit(f"exports.py: {header} declares only {len(old)} old names: this check no longer understands it")
        if wrong := exported & old - WANTED_OLD:
            sys.exit(f"exports.py: old names are exported: {sorted(wrong)}")


if __name__ == "__main__":
    main()
