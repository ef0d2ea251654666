#!/usr/bin/env python3
"""Writes for CTest which tests a program has: how each is started, its tier, its backend, and how long it takes.

    list_tests.py --program FILE --name comm --output FILE.cmake [--source FILE ...] [--runner "WORD;WORD"] ...

Run after the program has been linked (cohort_test() in tests/CMakeLists.txt). Marks in the sources say what a test wants
(tests/support/marks.h). Its seconds are those of tests/timings.json: CTest starts the longest first.

A test on the default backend is `comm.Suite.Name`, and once more on the other, where the mark says `both`, `comm_gloo.Suite.Name`.
With --rotates the others are on Gloo, too, with --in-place all that run on shm in memory that ranks share: thirds of them, each a
process, `comm_gloo.third_1`, `comm_in_place.third_1`.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
THIRDS = 3
MARK = re.compile(r"^(TIER|BACKEND|PLACE)(_OF_FILE)?\((\w+)\)\s*(?://.*)?$")
TEST = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+)\s*,\s*(\w+)\s*\)")
VALUES = re.compile(r"^\s*INSTANTIATE_TEST_SUITE_P\(\s*(\w+)\s*,\s*(\w+)\s*,")
KNOWN = {"TIER": ("gate", "all"), "BACKEND": ("gloo", "shm", "both"), "PLACE": ("own",)}


class Problem(Exception):
    pass


def marks_of_source(text, path):
    """{"Suite.Name" or "Prefix/Suite": {"TIER": "all", ...}}"""
    marks, of_file, pending = {}, {}, {}
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if found := MARK.match(line):
            kind, for_file, value = found.groups()
            if value not in KNOWN[kind]:
                raise Problem(f"{path}:{number}: {kind}({value}): it is one of {', '.join(KNOWN[kind])}")
            (of_file if for_file else pending)[kind] = value
            continue
        # A test's first line may be too long for one.
        together = line + " " + lines[number].strip() if number < len(lines) and re.match(r"\s*(TEST|INSTANTIATE)", line) else line
        if found := TEST.match(together):
            marks[f"{found[1]}.{found[2]}"], pending = {**of_file, **pending}, {}
        elif found := VALUES.match(together):
            if pending:
                marks[f"{found[1]}/{found[2]}"], pending = pending, {}
        elif pending and line.strip() and not line.startswith("//"):
            raise Problem(f"{path}:{number}: a mark must stand directly above its test")
    return marks


def marks_of(test, marks):
    """`test`: as GoogleTest has it, Prefix/Suite/0.Name/value."""
    suite, name = test.split(".", 1)
    parts = suite.split("/")
    if len(parts) > 1 and parts[-1].isdigit():  # of a typed suite
        parts.pop()
    of_test = marks.get(f"{parts[-1]}.{name.split('/')[0]}", {})
    return {**of_test, **(marks.get("/".join(parts[-2:]), {}) if len(parts) > 1 else {})}


def tests_of(command):
    """Names, as --gtest_filter takes them."""
    with tempfile.TemporaryDirectory() as folder:
        listing = pathlib.Path(folder, "tests.json")
        done = subprocess.run([*command, "--gtest_list_tests", f"--gtest_output=json:{listing}"], capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise Problem(f"{' '.join(command)} --gtest_list_tests ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        suites = json.loads(listing.read_text())["testsuites"]
    return [f"{suite['name']}.{test['name']}" for suite in suites for test in suite["testsuite"]]


def quoted(text):
    equals = "="
    while f"]{equals}]" in text:
        equals += "="
    return f"[{equals}[{text}]{equals}]"


class List:
    def __init__(self, options, seconds):
        self.options, self.seconds, self.lines = options, seconds, []
        self.command = [word for word in options.runner.split(";") if word] + [options.program]

    def add(self, name, arguments, tier, labels=(), environment=(), is_one_test=True):
        name = f"{self.options.name}{name}"
        properties = [("TIMEOUT", str(self.options.timeout)), ("LABELS", ";".join([tier, self.options.label, *labels]))]
        properties.append(("ENVIRONMENT", ";".join([f"COHORT_BINARY_DIR={self.options.binary_dir}", *environment])))
        if is_one_test:
            properties.append(("SKIP_REGULAR_EXPRESSION", r"\[  SKIPPED \]"))
        if self.options.one_thread:
            properties.append(("ENVIRONMENT_MODIFICATION", "OMP_NUM_THREADS=set:1"))
        if cost := self.seconds.get(name):
            properties.append(("COST", str(cost)))
        if re.search(r"(^|[./])DISABLED_", name):
            properties.append(("DISABLED", "TRUE"))
        self.lines.append(f"add_test({quoted(name)} {' '.join(map(quoted, [*self.command, *arguments]))})")
        self.lines.append(f"set_tests_properties({quoted(name)} PROPERTIES {' '.join(f'{key} {quoted(value)}' for key, value in properties)})")

    def add_each(self, tests, marks):
        for test in tests:
            mark = marks_of(test, marks)
            tier, backend = mark.get("TIER", self.options.tier), mark.get("BACKEND", "shm")
            arguments = [f"--gtest_filter={test}", "--gtest_also_run_disabled_tests"]
            self.add(f".{test}", [*arguments, *(["--backend=gloo"] if backend == "gloo" else [])], tier)
            if backend == "both":
                self.add(f"_gloo.{test}", [*arguments, "--backend=gloo"], tier)

    def add_thirds(self, variant, tests, arguments, environment=()):
        for third in range(THIRDS):
            if chosen := tests[third::THIRDS]:
                self.add(f"_{variant}.third_{third + 1}", [f"--gtest_filter={':'.join(chosen)}", *arguments], "all",
                         labels=[f"third_{third + 1}"], environment=environment, is_one_test=False)

    def add_shards(self, runs):
        """Of simulated devices, `place.schedule` each."""
        for run in runs:
            for shard in range(THIRDS):
                self.add(f".{run}.third_{shard + 1}", [f"--sim={run.replace('.', ',')}"], self.options.tier,
                         labels=[f"third_{shard + 1}"],
                         environment=[f"GTEST_TOTAL_SHARDS={THIRDS}", f"GTEST_SHARD_INDEX={shard}"], is_one_test=False)


def main(arguments):
    parser = argparse.ArgumentParser()
    for name in ("program", "name", "output", "binary-dir"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--source", action="append", default=[])
    parser.add_argument("--runner", default="")
    parser.add_argument("--label", default="fast")
    parser.add_argument("--timeout", type=int, default=240)
    parser.add_argument("--one-thread", action="store_true")
    parser.add_argument("--rotates", action="store_true", help="tests without a mark run on Gloo, too")
    parser.add_argument("--in-place", action="store_true", help="... and in place")
    parser.add_argument("--sim-run", action="append", default=[])
    parser.add_argument("--tier", default="gate", help="of tests without a mark")
    options = parser.parse_args(arguments)
    timings = ROOT / "tests/timings.json"
    ctest = List(options, json.loads(timings.read_text())["ctest"] if timings.exists() else {})
    if options.sim_run:
        ctest.add_shards(options.sim_run)
    else:
        marks = {}
        for source in options.source:
            marks.update(marks_of_source(pathlib.Path(source).read_text(), source))
        tests = tests_of(ctest.command)
        ctest.add_each(tests, marks)
        if options.rotates:
            rest = [test for test in tests if "BACKEND" not in marks_of(test, marks)]
            ctest.add_thirds("gloo", rest, ["--backend=gloo"])
        if options.in_place:
            # Where backends are a test's values, those of Gloo's hold no tensors in place.
            in_place = [test for test in tests if not test.endswith("/gloo") and marks_of(test, marks).get("BACKEND") != "gloo"
                        and "PLACE" not in marks_of(test, marks)]
            ctest.add_thirds("in_place", in_place, [], environment=["COHORT_TEST_IN_PLACE=1"])
    pathlib.Path(options.output).write_text("\n".join(ctest.lines) + "\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Problem as problem:
        sys.exit(f"list_tests.py: {problem}")
