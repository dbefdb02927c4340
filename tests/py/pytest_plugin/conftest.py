"""What the tests of the plug-in start with."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
