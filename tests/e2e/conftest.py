"""Fixtures of the end-to-end tests, and where their folders find what they share: beside this file and in tests/cluster.

A folder per layer; the Python ranks of a test stand beside it, the C++ ones in programs/. Names of files are unique in all of
tests/, because pytest imports each as a module of that name.
"""
import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))  # namespaces.py

from harness import BUILD
from jobs import Job


@pytest.fixture
def programs():
    """Folder of the helper programs built for these tests."""
    return BUILD / "bin" / "tests"


@pytest.fixture
def python():
    return sys.executable


@pytest.fixture(scope="session")
def golden(pytestconfig):
    """What Python computes, from a file or live: golden.py."""
    from golden import Goldens  # noqa: PLC0415  loads PyTorch, which many tests do without
    return Goldens(pytestconfig.getoption("--live"), pytestconfig.getoption("--write-goldens"))


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    job.end()
