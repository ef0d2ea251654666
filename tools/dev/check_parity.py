#!/usr/bin/env python3
"""docs/parity/: each entry has a known status, and names only tests that exist.

    - **item** (1.1): what we have.
      Status: partly: what is missing. Tests: `Suite.Name`, `tests/e2e/layer/name_test.py::test_name`

A test is one of GoogleTest or of pytest. An entry that claims "yes" or "partly" names at least one; one that says "not yet" names
none. The number is the page's, or begins with it, and docs/parity.md lists every page.
"""
import ast
import pathlib
import re
import sys

from sources import ROOT, files, report, without_comments


def gtest_names(root):
    names = set()
    for path in files(root, "tests/*.cpp", "tests/*.h"):
        for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", without_comments(path.read_text())):
            names.add(f"{suite}.{name}")
    return names


def pytest_names(root):
    names = set()
    for path in files(root, "tests/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names.add(f"{path.relative_to(root)}::{node.name}")
    return names


ENTRY = re.compile(r"- \*\*(?P<item>.+?)\*\* \((?P<area>\d+)(?:\.\d+)?\)(?:: .*)? Status: (?P<status>.*?)\.(?: Tests: (?P<tests>.*))?")


def entries(text):
    """(line, text in one line) of each entry of a page's list."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("- "):
            found.append((number, line))
        elif found and line.startswith("  "):
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found


def errors_of(page, text, tests, counts):
    errors = []
    area = (re.match(r"# (\d+)\. ", text) or [None, None])[1]
    for number, line in entries(text):
        where = f"{page}:{number}:"
        match = ENTRY.fullmatch(line)
        if not match or match["area"] != area:
            errors.append(f"{where} an entry is `- **item** ({area}): what we have. Status: yes. Tests: ...`")
            continue
        named, status = re.findall(r"`([^`]+)`", match["tests"] or ""), match["status"].split(":")[0]
        if status not in counts:
            errors.append(f'{where} status "{match["status"]}", must be yes, partly: ..., or not yet')
            continue
        counts[status] += 1
        errors += [f"{where} no test is called {name}" for name in named if name not in tests]
        if (status == "not yet") == bool(named):
            errors.append(f'{where} status "{status}" with {len(named)} tests')
    return errors


def main(root=ROOT):
    index = pathlib.Path(root, "docs/parity.md").read_text()
    tests = gtest_names(root) | pytest_names(root)
    counts = {"yes": 0, "partly": 0, "not yet": 0}
    errors = []
    for path in files(root, "docs/parity/*.md"):
        errors += errors_of(path.relative_to(root), path.read_text(), tests, counts)
        if f"(parity/{path.name})" not in index:
            errors.append(f"docs/parity.md:1: does not list parity/{path.name}")
    report("parity", errors, ", ".join(f"{count} {status}" for status, count in counts.items()))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
