"""Which versions of our functions NVIDIA's cudaTypedefs.h knows and we do not have, as gaps.def.

    gaps.py cudaTypedefs.h... > gaps.def      writes the table
    gaps.py --check cudaTypedefs.h...         fails if gaps.def is not that table

cuGetProcAddress must answer "none" for them, never the address of an older ABI with other arguments.
"""

import pathlib
import re
import sys

TABLES = pathlib.Path(__file__).resolve().parent.parent
HEAD = "/* G(name, version): ABIs of our functions that NVIDIA's headers know and we do not have. Written by check/gaps.py; numbers only. */\n"


def rows(file: str, pattern: str) -> dict[str, set[int]]:
    """Names with their versions, from one of our tables."""
    found: dict[str, set[int]] = {}
    for name, version in re.findall(pattern, (TABLES / file).read_text(), re.MULTILINE):
        found.setdefault(name, set()).add(int(version))
    return found


def table(headers: list[str]) -> str:
    have = rows("functions.def", r"^F\(\w+,(\w+),(\d+),")
    for name, versions in rows("aliases.def", r"^A\((\w+),(\d+),").items():
        have[name] |= versions
    known: dict[str, set[int]] = {}
    for header in headers:
        for name, version in re.findall(r"\*\s*PFN_(cu\w+?)_v(\d+)\)", pathlib.Path(header).read_text()):
            known.setdefault(name, set()).add(int(version))
    for name, versions in have.items():
        if unknown := versions - known.get(name, set()):
            sys.exit(f"gaps.py: the headers know no {name} of version {sorted(unknown)}")
    return HEAD + "".join(f"G({name},{version})\n" for name in sorted(have) for version in sorted(known[name] - have[name]))


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--check"]:
        if (TABLES / "gaps.def").read_text() != table(arguments[1:]):
            sys.exit("gaps.py: gaps.def is not what the headers say; run it without --check and put its output there")
    else:
        sys.stdout.write(table(arguments))


if __name__ == "__main__":
    main()
