"""tools/dev/sample_mutants.py: what it draws, and its table for a small project."""
import collections
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))
import sample_mutants
import switched_build
from generate_mutants import Change
from mutants import SWITCH

SOURCE = """void step(int* a);
void step(int* a) { *a = 5; }
int after(int a) {
  return a + 2;
}
void never(int* a) {
  step(a);
}
int waited() {
  int a = 0;
  for (; a == 0;)
    step(&a);
  step(&a);
  return a;
}
"""
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(small CXX)
enable_testing()
macro(cohort_test name source)
  add_executable(cohort_${name}_test ${source} "${PROJECT_SOURCE_DIR}/cohort/base/small.cpp")
  target_include_directories(cohort_${name}_test PRIVATE "${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name}.Small.Adds COMMAND cohort_${name}_test)
  add_test(NAME ${name}.Small.Waits COMMAND cohort_${name}_test waits)
  add_test(NAME ${name}.Small.Fails COMMAND cohort_${name}_test waits and fails)
endmacro()
add_subdirectory(tests/base)
"""
TEST = """int after(int a);
int waited();
TEST(Small, Adds) {}
int main(int argc, char**) { return argc == 1 ? after(1) != 3 : argc == 2 ? waited() != 5 : 1; }
"""
COUNT = 5  # lines that can be changed
LINE = re.compile(r"(killed|survived|not reached) +\d+ cohort/base/small\.cpp:(\d+): (.*)")
SOURCES = {"CMakeLists.txt": CMAKE, "tests/base/CMakeLists.txt": "cohort_test(base small_test.cpp)\n", "tests/e2e/.keep": "",
           "tests/base/small_test.cpp": "#define TEST(a, b) void test_##a##_##b()\n" + TEST}


def project(root, source):
    switch = (ROOT / SWITCH).read_text()
    for name, text in {**SOURCES, "cohort/base/small.cpp": source, SWITCH: switch}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    def run(*options):
        done = subprocess.run([sys.executable, ROOT / "tools/dev/sample_mutants.py", "--root", root, "--layers", "base", *options], capture_output=True,
                              text=True, env={**os.environ, "GIT_DIR": "/nonexistent"})
        return done.returncode, done.stdout.splitlines(), done.stderr
    return run


@pytest.mark.tier_all  # it builds small projects
def test_a_sample_of_a_small_project(tmp_path):
    code, lines, errors = project(tmp_path, SOURCE)("--sample", "20", "--limit", "3", "--jobs", "1")
    assert code == 0, errors
    assert lines[:2] == [f"{COUNT} of {COUNT} mutants compile; running 3 tests without any",
                         f"left out, as it fails without a mutant: base.Small.Fails ({tmp_path}/build/mutants/logs/test2.txt)"]
    found = {int(match[2]): (match[1], match[3]) for match in map(LINE.match, lines) if match}
    assert {line: found[line] for line in (4, 7, 12, 13)} == {
        4: ("killed", "sign: a + 2 -> a - 2  base.Small.Adds"), 7: ("not reached", "call: step(a); -> (nothing)"),
        12: ("killed", "call: step(&a); -> (nothing)  base.Small.Waits"), 13: ("survived", "call: step(&a); -> (nothing)  1 of 1 tests that come by")}
    assert [line.split() for line in lines if line.startswith("all ")] == [["all", "5", "2", "2", "1", "0", "40%"]]
    assert lines[-11:] == ["# survived: line 13", "cohort/base/small.cpp", "  line   step(&a);", "  change step(&a); -> (nothing)", "  reason ", "",
                           "# not reached: line 7", "cohort/base/small.cpp", "  line   step(a);", "  change step(a); -> (nothing)", "  reason "]


@pytest.mark.tier_all  # it builds small projects
def test_what_does_not_compile_is_left_out_and_what_is_known_not_drawn(tmp_path):
    source = "struct A { int a; };\nA operator+(A a, A b) { return {a.a}; }\nA sum(A a, A b) {\n  return a + b;\n}\n"
    run = project(tmp_path, source + "int after(int a) {\n  return a < 9 ? a + 2 : 9;\n}\nint waited() { return 5; }\n")
    (tmp_path / "tests/mutants/survivors.txt").write_text("".join(
        f"cohort/base/small.cpp\n  line   return a < 9 ? a + 2 : 9;\n  change {change}\n  reason equivalent: the test has 1 only\n"
        for change in ("a < 9 -> a <= 9", "a < 9 -> true")))
    code, lines, errors = run("--sample", "10", "--least", "60")
    assert code == 0, errors
    assert [line.split()[1:] for line in lines if line.startswith("base ")] == [["2", "1", "0", "0", "1", "100%"]], lines
    assert run("--check")[:2] == (0, ["survivors: 2, their places are there"])


def test_the_same_seed_draws_the_same_sample():
    draw = sample_mutants.draw
    first = draw(ROOT, {"base", "store"}, 30, "1")
    assert first == draw(ROOT, {"base", "store"}, 30, "1") != draw(ROOT, {"base", "store"}, 30, "2")
    assert len(first) == 30 and {change.layer for change in first} == {"base", "store"}
    assert not any(a.file == b.file and a.begin < b.end and b.begin < a.end for i, a in enumerate(first) for b in first[:i])


def test_the_extras_are_drawn_from():
    assert {change.layer for change in sample_mutants.draw(ROOT, {"extras/report"}, 5, "1")} == {"extras/report"}


def test_shares_are_in_proportion_and_add_up():
    assert sample_mutants.shares({"a": 70, "b": 20, "c": 10}, 9) == {"a": 6, "b": 2, "c": 1}
    assert sum(sample_mutants.shares({str(n): n + 1 for n in range(17)}, 100).values()) == 100


def test_faults_of_the_compiler_lead_to_mutants(tmp_path):
    def change(line, old, file="cohort/base/a.cpp"):
        return Change(file, "bound", 0, 1, line, old, "", "")
    numbered = {1: change(3, "a\n  < b"), 2: change(8, "a"), 3: change(3, "a", "cohort/base/b.cpp")}
    output = f"../../cohort/base/a.cpp:4:7: error: no\n{tmp_path}/cohort/base/b.cpp:99:1: fatal error: no\nnote: cohort/base/a.cpp:8:1: error: no"
    faults = switched_build.faults_of(output, tmp_path, tmp_path / "build/x")
    assert faults == [("cohort/base/a.cpp", 4), ("cohort/base/b.cpp", 99)]
    assert switched_build.offenders(numbered, faults) == {1, 3}


def test_a_layer_is_tried_by_its_own_tests_and_cheap_ones_above():
    assert set(sample_mutants.programs_for(ROOT, {"files"}, False)) == {"files", "report", "extras_files", "extras_report"}
    assert sample_mutants.programs_for(ROOT, {"extras/files"}, True) == {"extras_files": "extras/files"}
    assert set(sample_mutants.programs_for(ROOT, {"tools"}, True)) == {"elastic", "launcher"}
    assert {"comm", "conformance"} <= set(sample_mutants.programs_for(ROOT, {"comm"}, False))


def test_the_table_has_shares_of_what_compiles():
    rows = {"base": collections.Counter({"killed": 3, "survived": 1, "did not compile": 6}), "store": collections.Counter({"not reached": 4})}
    assert [line.split()[-1] for line in sample_mutants.table(rows)[1:]] == ["75%", "0%", "38%"]
