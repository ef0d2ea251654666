#!/usr/bin/env python3
"""Prints how many tests were skipped and why; ends with 1 if more were skipped than tools/dev/expected_skips.txt expects.

    tools/dev/count_skips.py [FOLDER [EXPECTED]]

Reads the runners' output in FOLDER (build/test-logs): *.xml of ctest and pytest (JUnit's format), and *.skipped of scripts that
left out a whole step, with one `name: reason` per line. A line of EXPECTED is `number pattern reason`; a test's name is `ctest:
shm.Suite.Name` or `pytest: tests.e2e.layer.file_test.test_name[value]`, with the name of the XML file before the colon.
"""
import collections
import fnmatch
import pathlib
import re
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]


def reason_of(case, skipped):
    """Returns the reason: pytest has it in the message; GoogleTest's GTEST_SKIP() after a line `file:line: Skipped`."""
    said = re.search(r"^\S+:\d+: Skipped\n((?:(?!\[ |\S+:\d+: ).+\n?)*)", case.findtext("system-out") or "", re.M)
    words = said.group(1) if said else skipped.get("message") or skipped.text or "no reason is given"
    return " ".join(words.split())


def skips_of_xml(path):
    found, num_tests = [], 0
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        num_tests += 1
        skipped = case.find("skipped")
        if skipped is not None:
            owner = case.get("classname") or ""
            name = case.get("name") if owner in ("", case.get("name")) else f"{owner}.{case.get('name')}"
            found.append((f"{path.stem}: {name}", reason_of(case, skipped)))
    return found, num_tests


def skips_in(folder):
    """Returns ([(name, reason)], number of tests, errors)."""
    found, num_tests, errors = [], 0, []
    for path in sorted(folder.glob("*.xml")):
        try:
            more, number = skips_of_xml(path)
        except xml.etree.ElementTree.ParseError as error:
            errors.append(f"{path}: {error}: its runner did not finish")
            continue
        found, num_tests = found + more, num_tests + number
    for path in sorted(folder.glob("*.skipped")):
        for line in path.read_text().splitlines():
            name, _, reason = line.partition(": ")
            found.append((f"{path.stem}: {name}", reason))
    if not num_tests:
        errors.append(f"{folder} has no results of tests")
    return found, num_tests, errors


def read_expected(path):
    expected, errors = [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fields = line.split("  ")
        fields = [field.strip() for field in fields if field.strip()]
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 3 or not fields[0].isdigit():
            errors.append(f"{path}:{number}: needs `number  pattern  reason`, two spaces between")
        else:
            expected.append((fields[1], int(fields[0]), fields[2]))
    return expected, errors


def main(folder=ROOT / "build/test-logs", expected_file=ROOT / "tools/dev/expected_skips.txt"):
    found, num_tests, errors = skips_in(folder)
    expected, more = read_expected(expected_file)
    errors += more
    groups, used = collections.defaultdict(list), collections.Counter()
    for name, reason in found:
        pattern = next((each[0] for each in expected if fnmatch.fnmatchcase(name, each[0].replace("[", "[[]"))), None)
        groups[(pattern, reason)].append(name)
        used[pattern] += 1
    print(f"skipped: {len(found)} of {num_tests} tests")
    for (pattern, reason), names in sorted(groups.items(), key=lambda group: (-len(group[1]), group[1])):
        shown = f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
        print(f"  {len(names):4}  {'expected' if pattern else 'NOT EXPECTED'}  {reason}  ({shown})")
    if used[None]:
        errors.append(f"{used[None]} skipped tests are not expected: install what they need, or name them in {expected_file.name}")
    for pattern, most, _ in expected:
        if used[pattern] > most:
            errors.append(f"{used[pattern]} tests that match {pattern} were skipped, {most} are expected")
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(*map(pathlib.Path, sys.argv[1:])))
