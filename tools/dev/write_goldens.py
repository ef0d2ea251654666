#!/usr/bin/env python3
"""Writes goldens: what Python's PyTorch computes for tests, kept beside them (tests/e2e/golden.py). Needs a finished build: a
test writes its golden, and then compares what C++ computes.

    tools/dev/write_goldens.py [TEST ...]      default: the tests whose goldens are outdated, damaged or missing
"""
import os
import subprocess
import sys

import check_goldens
from sources import ROOT


def main(tests):
    tests = tests or sorted({str(test) for test, _ in check_goldens.faults(ROOT)})
    if not tests:
        print("every golden is that of its scripts and this release")
        return 0
    command = [ROOT / ".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--write-goldens", "-m", "golden", *tests]
    return subprocess.run(command, cwd=ROOT, env=dict(os.environ, COHORT_TEST_RARE_GC="1")).returncode


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
