"""Fixtures of the end-to-end tests."""
import sys

import pytest

from harness import BUILD
from jobs import Job


@pytest.fixture
def programs():
    """Folder of the helper programs built for these tests."""
    return BUILD / "bin" / "tests"


@pytest.fixture
def python():
    return sys.executable


@pytest.fixture
def job(tmp_path):
    job = Job(tmp_path)
    yield job
    job.end()
