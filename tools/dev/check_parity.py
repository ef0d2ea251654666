#!/usr/bin/env python3
"""docs/parity.md: each row has five cells, a known status, and names only tests that exist.

A test is `Suite.Name` (GoogleTest) or `tests/e2e/layer/name_test.py::test_name` (pytest). A row that claims "yes" or "partly"
names at least one; a row that says "not yet" names none.
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


def errors_of(text, tests):
    errors, counts, in_table = [], {"yes": 0, "partly": 0, "not yet": 0}, False
    for number, line in enumerate(text.splitlines(), 1):
        where = f"docs/parity.md:{number}:"
        in_table = line.startswith("|") and (in_table or line.startswith("| area |"))
        if not in_table or re.match(r"\|[\s:|-]+$", line) or line.startswith("| area |"):
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if len(cells) != 5:
            errors.append(f"{where} {len(cells)} cells, a row has 5: area, item, what we have, test, status")
            continue
        named, status = re.findall(r"`([^`]+)`", cells[3]), cells[4].split(":")[0]
        if status not in counts:
            errors.append(f'{where} status "{cells[4]}", must be yes, partly: ..., or not yet')
            continue
        counts[status] += 1
        errors += [f"{where} no test is called {name}" for name in named if name not in tests]
        if (status == "not yet") == bool(named):
            errors.append(f'{where} status "{status}" with {len(named)} tests')
    return errors, counts


def main(root=ROOT):
    text = pathlib.Path(root, "docs/parity.md").read_text()
    errors, counts = errors_of(text, gtest_names(root) | pytest_names(root))
    report("parity", errors, ", ".join(f"{count} {status}" for status, count in counts.items()))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
