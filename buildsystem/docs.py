"""Builds the site of the documentation, strictly, into build/site: `make docs`.

In an environment of its own (build/docs), since nothing else needs what it needs; made with this interpreter, for the reference is read from the package
itself, compiled parts included. A link to a page or a heading that is not there, or a name of the reference that does not exist, is an error. So is
anything that a browser would load from elsewhere.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from toolchain import ROOT, fail

FOLDER = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
REQUIREMENTS = ROOT / "buildsystem" / "requirements-docs.txt"

LOADS = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?:https?:)?//"""
    r"""|<link\b(?![^>]*\brel=["']?canonical)[^>]*\bhref=["']?(?:https?:)?//"""
)
"""What makes a browser load something: not a link that a person may follow."""


def environment() -> Path:
    """Its interpreter."""
    python, stamp, now = FOLDER / "bin" / "python", FOLDER / "requirements.txt", f"{sys.version}\n{REQUIREMENTS.read_text()}"
    if not (stamp.exists() and stamp.read_text() == now):
        print("docs: installing buildsystem/requirements-docs.txt", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(REQUIREMENTS)], check=True)
        stamp.write_text(now)
    return python


def loaded_from_elsewhere(text: str) -> list[str]:
    """The tags of a page that load something from another place than the site."""
    return [found[0] for found in LOADS.finditer(text)]


def loaded_by_styles(text: str) -> list[str]:
    """The same of a style sheet."""
    return re.findall(r"""(?:url\(|@import)\s*["']?(?:https?:)?//[^\s"')]*""", text)


def main() -> int:
    """Build it; the exit code is 0 where nothing is wrong."""
    python = environment()
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    command = [str(python), "-m", "mkdocs", "build", "--strict", "--quiet", "--clean", "-f", str(ROOT / "mkdocs.yml")]
    if subprocess.run(command, env=env, cwd=ROOT, check=False).returncode:
        fail("docs: mkdocs found something wrong, see above")
    pages = sorted(SITE.rglob("*.html"))
    styles = sorted(SITE.rglob("*.css"))
    wrong = [f"{style.relative_to(SITE)}: {rule}" for style in styles for rule in loaded_by_styles(style.read_text(encoding="utf-8"))]
    wrong += [f"{page.relative_to(SITE)}: {tag}" for page in pages for tag in loaded_from_elsewhere(page.read_text(encoding="utf-8"))]
    if wrong:
        fail("docs: pages that load something from elsewhere:\n" + "\n".join(wrong))
    print(f"docs: {len(pages)} pages in {SITE.relative_to(ROOT)}/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
