"""tests/support/list_tests.py: which marks it reads, and what CTest is given."""
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))

import list_tests

SOURCE = """#include "tests/support/marks.h"
TIER_OF_FILE(all)
namespace {
TEST(Sums, AreExact) {}
BACKEND(both)
TIER(gate)  // the one of its kind
TEST_F(Failures, NameTheRank) {
}
// BACKEND(gloo)
BACKEND(gloo)
TEST_P(Long, Name) {}
PLACE(own)
TEST(AVeryLongNameOfASuiteOfTests,
     AndOfATest) {}
TIER(gate)
INSTANTIATE_TEST_SUITE_P(Few, Long, Values(1));
INSTANTIATE_TEST_SUITE_P(Many, Long, Values(2));
}
"""
# Lists what GoogleTest would.
PROGRAM = """#!{python}
import json, sys
assert "--gtest_list_tests" in sys.argv
path = next(word for word in sys.argv if word.startswith("--gtest_output=json:")).split(":", 1)[1]
suites = {{"Sums": ["AreExact"], "Failures": ["NameTheRank"], "Few/Long": ["Name/0"], "Many/Long": ["Name/0"],
          "AVeryLongNameOfASuiteOfTests": ["AndOfATest"]}}
json.dump({{"testsuites": [{{"name": suite, "testsuite": [{{"name": name}} for name in names]}} for suite, names in suites.items()]}}, open(path, "w"))
"""


@pytest.fixture
def listed(tmp_path):
    """What ctest knows of the program: {name: its properties, with the command}."""
    source, program, cmake = tmp_path / "a_test.cpp", tmp_path / "program", tmp_path / "list.cmake"
    source.write_text(SOURCE)
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o700)

    def of(*options):
        list_tests.main(["--program", str(program), "--name", "sums", "--output", str(cmake), "--binary-dir", "/b c", "--source", str(source), *options])
        (tmp_path / "CTestTestfile.cmake").write_text(cmake.read_text())
        shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=tmp_path, capture_output=True, text=True, check=True)
        return {test["name"]: {"command": test["command"], **{each["name"]: each["value"] for each in test["properties"]}}
                for test in json.loads(shown.stdout)["tests"]}

    return of


def tier(test):
    (which,) = {"gate", "all"} & set(test["LABELS"])
    return which


def test_marks_say_tier_and_backend(listed):
    tests = listed()
    assert {name: tier(test) for name, test in tests.items()} == {
        "sums.Sums.AreExact": "all", "sums.Failures.NameTheRank": "gate", "sums_gloo.Failures.NameTheRank": "gate",
        "sums.Few/Long.Name/0": "gate", "sums.Many/Long.Name/0": "all", "sums.AVeryLongNameOfASuiteOfTests.AndOfATest": "all"}
    assert {name for name, test in tests.items() if "--backend=gloo" in test["command"]} == {
        "sums_gloo.Failures.NameTheRank", "sums.Few/Long.Name/0", "sums.Many/Long.Name/0"}
    assert tests["sums.Sums.AreExact"]["ENVIRONMENT"] == ["COHORT_BINARY_DIR=/b c"]


def test_what_has_no_mark_rotates(listed):
    tests = listed("--rotates", "--in-place", "--one-thread")
    chosen = {name: test["command"][1].removeprefix("--gtest_filter=").split(":") for name, test in tests.items() if "third" in name}
    assert chosen == {"sums_gloo.third_1": ["Sums.AreExact"], "sums_gloo.third_2": ["AVeryLongNameOfASuiteOfTests.AndOfATest"],
                      "sums_in_place.third_1": ["Sums.AreExact"], "sums_in_place.third_2": ["Failures.NameTheRank"]}
    assert all(tier(tests[name]) == "all" and name.split(".")[1] in tests[name]["LABELS"] for name in chosen)
    assert "COHORT_TEST_IN_PLACE=1" in tests["sums_in_place.third_1"]["ENVIRONMENT"]
    assert "--backend=gloo" in tests["sums_gloo.third_1"]["command"]
    assert "SKIP_REGULAR_EXPRESSION" in tests["sums.Sums.AreExact"] and "SKIP_REGULAR_EXPRESSION" not in tests["sums_gloo.third_1"]


def test_devices_are_shards_of_each_schedule(listed):
    tests = listed("--sim-run", "sim.mixed", "--sim-run", "cuda.mixed", "--tier", "all")
    assert {name: tier(test) for name, test in tests.items()} == {
        f"sums.{run}.third_{n}": "all" for run in ("sim.mixed", "cuda.mixed") for n in (1, 2, 3)}
    assert "--sim=cuda,mixed" in tests["sums.cuda.mixed.third_2"]["command"]
    assert "GTEST_SHARD_INDEX=1" in tests["sums.cuda.mixed.third_2"]["ENVIRONMENT"]


@pytest.mark.parametrize("text, message", [
    ("BACKEND(mpi)\nTEST(A, B) {}\n", "a.cpp:1: BACKEND(mpi): it is one of gloo, shm, both"),
    ("TIER(all)\nint helper() { return 1; }\n", "a.cpp:2: a mark must stand directly above its test"),
])
def test_a_mark_that_means_nothing_is_an_error(text, message):
    with pytest.raises(list_tests.Problem) as error:
        list_tests.marks_of_source(text, "a.cpp")
    assert str(error.value) == message


def test_a_program_that_cannot_list_its_tests_is_an_error(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho it is broken\nexit 3\n")
    program.chmod(0o700)
    with pytest.raises(list_tests.Problem, match="ended with 3:\nit is broken"):
        list_tests.tests_of([str(program)])
