#!/usr/bin/env python3
"""Runs failed tests once more, if tools/dev/known_flakes.txt has all of them; ends with 0 if all then pass.

    tools/dev/second_try.py LOGS JOBS RUNNER ...

RUNNER: those that failed, of ctest, pytest and alone; their results are in the folder LOGS. The second try repeats the conditions
of the first, not of a quiet machine: with the same seeds (run_tests.sh sets them for both), and beside the tests that ran at the
same time, JOBS at a time. A test of `alone` had no tests beside it.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAKES = ROOT / "tools/dev/known_flakes.txt"
PYTEST = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider"]
STARTED = re.compile(r"\s*Start\s+(\d+): ")
ENDED = re.compile(r"\s*\d+/\d+ Test\s+#(\d+): ")
FAILED = re.compile(r"\s+(\d+) - (.+) \([^()]+\)")

# `command`: runs the test once more, with those beside it.
Failed = collections.namedtuple("Failed", "name command")
Case = collections.namedtuple("Case", "file node seconds has_failed")


def read_flakes(path=FLAKES):
    """Returns {name: reason}."""
    flakes = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, _, reason = line.partition("  ")
        if not re.match("(ctest|pytest|alone): ", name) or not reason.strip():
            raise SystemExit(f"{path.name}:{number}: needs `runner: name  reason`, two spaces between")
        flakes[name] = reason.strip()
    return flakes


def ran_beside(lines, number):
    """Returns the numbers of the tests that ctest ran at the same time."""
    running, beside = set(), set()
    for line in lines:
        if started := STARTED.match(line):
            running.add(started[1])
            beside |= running if number in running else set()
        elif ended := ENDED.match(line):
            running.discard(ended[1])
            if ended[1] == number:
                break
    return sorted(beside - {number}, key=int)


def failed_in_ctest(logs, jobs):
    lines = (logs / "ctest.txt").read_text().splitlines()
    listed = lines[lines.index("The following tests FAILED:") + 1:] if "The following tests FAILED:" in lines else []
    for number, name in (match.groups() for match in map(FAILED.match, listed) if match):
        numbers = ",".join([number, number, "1", *ran_beside(lines, number)])
        yield Failed(f"ctest: {name.split('  #')[0]}", ["ctest", "--preset", "release", "-j", str(jobs), "-I", numbers])


def cases_of(path):
    """Returns the tests in the order in which they ended."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        module, name = case.get("classname") or "", case.get("name")
        file = module.replace(".", "/") + ".py"
        has_failed = case.find("failure") is not None or case.find("error") is not None
        yield Case(file, f"{file}::{name}" if module else name, float(case.get("time") or 0), has_failed)


def ended_around(cases, one, jobs):
    """Returns tests of other files that ended at about the same time, as many as the other jobs could run in its time."""
    left, chosen = (jobs - 1) * one.seconds, []
    place = cases.index(one)
    for _, case in sorted(enumerate(cases), key=lambda each: abs(each[0] - place)):
        if left > 0 and case.file != one.file and not case.has_failed:
            chosen.append(case.node)
            left -= case.seconds
    return chosen


def failed_in_pytest(logs, runner, jobs):
    cases = list(cases_of(logs / f"{runner}.xml"))
    for case in (case for case in cases if case.has_failed):
        beside = ["-n", str(jobs), "--dist", "loadfile", *ended_around(cases, case, jobs)] if runner == "pytest" else ["-p", "no:xdist"]
        yield Failed(f"{runner}: {case.node}", [*PYTEST, case.node, *beside])


def main(logs, jobs, runners):
    flakes, passed = read_flakes(), []
    failed = {runner: list(failed_in_ctest(logs, jobs) if runner == "ctest" else failed_in_pytest(logs, runner, jobs)) for runner in runners}
    every = [test for tests in failed.values() for test in tests]
    (logs / "tests-failed.txt").write_text("".join(f"{test.name}\n" for test in every))
    unknown = [test.name for test in every if test.name not in flakes]
    unknown += [f"{runner}, which names no test" for runner, tests in failed.items() if not tests]
    if unknown:
        print("=== no second try: not in tools/dev/known_flakes.txt:", *unknown, sep="\n  ")
        return 1
    for test in every:
        print(f"=== a second try of {test.name}", flush=True)
        if subprocess.run(test.command, cwd=ROOT, env={**os.environ, "COHORT_BINARY_DIR": str(ROOT / "build")}).returncode:
            return 1
        passed.append(test.name)
    (logs / "second-tries.txt").write_text("".join(f"passed on the second try only: {name}: {flakes[name]}\n" for name in passed))
    return 0


if __name__ == "__main__":
    sys.exit(main(ROOT / sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
