#!/usr/bin/env python3
"""Prints which tests a change can affect, as variables of a shell: chosen_ctest (an expression), chosen_pytest, left_out.

    tools/dev/changed_tests.py [FILE ...]      default: what tools/dev/changed_files.sh names

A layer's change reaches the layers above it (check_layers.py) and the tests of all of these. A file that belongs to no layer, test or
document may reach everything.
"""
import pathlib
import re
import shlex
import subprocess
import sys

import check_layers
from sources import ROOT

# Folders of tests without a layer of the same name, and the layers that they depend on.
STANDS_ON = {
    "conformance": ["comm", "shm"],
    "extras": [layer for layer in check_layers.BELOW if layer.startswith("extras/")],
    "devices": ["comm", "dtensor", "parallel", "data", "checkpoint", "train"],
    "benchmarks": ["comm", "parallel", "store", "elastic", "checkpoint", "pipeline"],
    "e2e/data": ["data", "extras/files", "extras/data"],
    "e2e/models": ["models", "extras/models"],
    "e2e/train": ["train", "extras/train"],
    "python": ["comm", "parallel", "elastic"],
    "cluster": ["comm", "elastic"],
    "torch_suite": ["comm"],
    "fuzz": check_layers.WITHOUT_TORCH,
    "packaging": ["comm"],
    "headers": [],
    "tools": [],
    "e2e/launcher": ["elastic"],
    "e2e/schedulers": ["rendezvous", "elastic"],
    "e2e/examples": ["train", "models", "parallel", "extras/data", "extras/models", "extras/train"],
    "e2e/benchmarks": ["comm", "parallel", "store", "elastic", "checkpoint", "pipeline"],
}
# The layers, or folders of tests, that a file outside cohort/ can affect.
REACHES = [
    (r"docs/|LICENSE", [], ["tools"]),
    (r"examples/", [], ["e2e/examples", "models", "tools"]),
    (r"benchmarks/", [], ["benchmarks", "e2e/benchmarks"]),
    (r"python/", [], ["python", "packaging", "torch_suite"]),
    (r"tools/cohort/", ["elastic"], []),
    (r"tools/cohort-ckpt/", [], ["e2e/checkpoint"]),
    (r"tools/cohort-data/", [], ["e2e/data", "e2e/files"]),
    (r"tools/dev/|\.ci/|tests/mutants/|tests/timings\.json", [], ["tools"]),
]


def above(layers):
    """Returns these layers and all that depend on them: each step of BELOW, which names lower layers first, adds the next
    ones."""
    found = set(layers)
    for name, below in check_layers.BELOW.items():
        if set(below) & found:
            found.add(name)
    return found


def folder_of(path):
    """Returns the folder of tests that a file of tests/ belongs to."""
    parts = path.split("/")[1:-1]
    if parts[:2] == ["e2e", "programs"]:
        return "/".join(["e2e", *parts[2:3]])
    return "/".join(parts[:2] if parts[:1] == ["e2e"] else parts[:1])


def reached(paths, folders):
    """Returns (layers, folders of tests), or None if everything may be affected."""
    layers, direct = set(), set()
    for path in paths:
        if path.endswith(".md"):
            direct.add("tools")
        elif layer := check_layers.layer_of(path):
            layers.add(layer)
        elif path.startswith("tests/") and folder_of(path) in folders:
            direct.add(folder_of(path))
        elif known := next((each for each in REACHES if re.match(each[0], path)), None):
            layers |= set(known[1])
            direct |= set(known[2])
        else:
            return None
    layers = above(layers)
    return layers, direct | {folder for folder in folders if set(STANDS_ON.get(folder, [folder.removeprefix("e2e/")])) & layers}


def folders_of_tests(root=ROOT):
    """Returns {folder: (programs of ctest, whether pytest has tests there)}."""
    folders = {}
    for folder in [*sorted((root / "tests").iterdir()), *sorted((root / "tests/e2e").iterdir())]:
        name = folder.relative_to(root / "tests").as_posix()
        if not folder.is_dir() or name in ("e2e", "support", "e2e/programs") or folder.name.startswith(("_", ".")):
            continue
        listing = folder / "CMakeLists.txt"
        programs = re.findall(r"^\s*cohort_test\((\w+)", listing.read_text(), re.M) if listing.exists() and not name.startswith("e2e/") else []
        if name == "packaging":
            programs = ["packaging"]
        folders[name] = (programs, any(folder.glob("*_test.py")))
    return folders


def choose(paths, folders):
    """Returns (expression for ctest, paths for pytest, what is left out)."""
    found = reached(paths, folders)
    chosen = sorted(folders) if found is None else sorted(found[1])
    programs = [program for folder in chosen for program in folders[folder][0]]
    python = [f"tests/{folder}" for folder in chosen if folders[folder][1]]
    return f"^({'|'.join(programs) or 'none'})(_gloo|_in_place)?\\.", python, [folder for folder in sorted(folders) if folder not in chosen]


def main(arguments):
    paths = arguments or subprocess.run([ROOT / "tools/dev/changed_files.sh"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    expression, python, left_out = choose(paths, folders_of_tests())
    print(f"chosen_ctest={shlex.quote(expression)}")
    print(f"chosen_pytest=({' '.join(map(shlex.quote, python))})")
    print(f"left_out={shlex.quote(', '.join(left_out))}")


if __name__ == "__main__":
    main(sys.argv[1:])
