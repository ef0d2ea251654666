#!/usr/bin/env python3
"""Goldens (tests/e2e/golden.py) are complete, small, of the release that setup.sh installs, and of the scripts beside their
tests. Every test has its own golden, as the gate would otherwise start PyTorch for it."""
import pathlib
import re
import sys

from sources import ROOT, files, report

sys.path.append(str(ROOT / "tests/e2e"))

import golden_file

MOST_BYTES = 100_000
MOST_BYTES_OF_ALL = 1_000_000


def release_of(root):
    return re.search(r"^torch_version=(\S+)", (root / "tools/dev/setup.sh").read_text(), re.M)[1]


def fault_of(path, release):
    test = golden_file.owner_of(path)
    if not test.exists():
        return f"there is no {test.name} that it could be of"
    try:
        origin, _ = golden_file.read_metadata(path)
    except golden_file.BadGolden as error:
        return str(error)
    gone = [name for name in origin["scripts"] if not (test.parent / name).exists()]
    if gone:
        return f"there is no {', '.join(gone)} any more"
    why = golden_file.why_outdated(origin, golden_file.origin_of([test.parent / name for name in origin["scripts"]], origin["arguments"], release))
    if why:
        return f"{why}. Write it anew: {golden_file.WRITER}"
    return f"{path.stat().st_size} bytes are more than {MOST_BYTES}" if path.stat().st_size > MOST_BYTES else ""


def faults(root):
    """Returns [(test, what is wrong)]."""
    goldens = files(root, "tests/*/goldens/*.safetensors")
    release = release_of(root) if goldens else ""
    found = [(golden_file.owner_of(path), f"{path.relative_to(root)}: {fault}") for path in goldens if (fault := fault_of(path, release))]
    known = {golden_file.owner_of(path) for path in goldens}
    for test in files(root, "tests/e2e/*_test.py"):
        if test not in known and "golden(__file__" in test.read_text():
            found.append((test, f"{test.relative_to(root)}:1: it has no golden. Write it: {golden_file.WRITER}"))
    return found


def main(root=ROOT):
    goldens = files(root, "tests/*/goldens/*.safetensors")
    errors = [text for _, text in faults(root)]
    size = sum(path.stat().st_size for path in goldens)
    if size > MOST_BYTES_OF_ALL:
        errors.append(f"goldens have {size} bytes, more than {MOST_BYTES_OF_ALL}: shorten them, or compare live")
    report("goldens", errors, f"{len(goldens)} files")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
