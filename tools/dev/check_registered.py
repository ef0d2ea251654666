#!/usr/bin/env python3
"""Every test runs: a CMakeLists.txt above it names each tests/**/*_test.cpp, and pytest collects each Python test, under a unique
name."""
import pathlib
import re
import sys

from sources import ROOT, files, report


def cmake_errors(root):
    errors, tests = [], pathlib.Path(root, "tests")
    named = set()
    for listing in files(root, "tests/CMakeLists.txt", "tests/*/CMakeLists.txt"):
        text = re.sub(r"#[^\n]*", "", listing.read_text())
        for word in re.findall(r"[\w./${}-]+_test\.cpp", text):
            word = re.sub(r"\$\{\w+\}/?", "", word)
            named.add((listing.parent / word).resolve())
            named.add((tests / word).resolve())
    paths = files(root, "tests/*_test.cpp")
    for path in paths:
        if path.resolve() not in named:
            errors.append(f"{path.relative_to(root)}:1: no CMakeLists.txt in tests/ names this file, so it never runs")
    return errors, len(paths)


def python_errors(root):
    errors, paths, first = [], files(root, "tests/*.py"), {}
    for path in paths:
        # pytest puts every folder of tests on the path: of two modules with the same name, it would import the first one twice.
        if path.name != "conftest.py" and (other := first.setdefault(path.name, path)) != path:
            errors.append(f"{path.relative_to(root)}:1: {other.relative_to(root)} has the same name, and pytest imports one of them only")
        if re.search(r"^def test_|^class Test", path.read_text(), re.M) and not re.match(r"test_.*\.py$|.*_test\.py$", path.name):
            errors.append(f"{path.relative_to(root)}:1: pytest collects *_test.py only, so its tests never run")
    return errors, len(paths)


def main(root=ROOT):
    cmake, num_cpp = cmake_errors(root)
    python, num_python = python_errors(root)
    report("registered", cmake + python, f"{num_cpp} C++ and {num_python} Python files")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
