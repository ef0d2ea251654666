"""The runner of PyTorch's backend tests: what it calls passed, failed, skipped and explained."""
import os
import pathlib
import subprocess
import sys
import time
import unittest

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import counts  # noqa: E402
import explained  # noqa: E402
import runner  # noqa: E402

pytestmark = pytest.mark.tier_all  # it runs a part of PyTorch's suite again and again


class Cases(unittest.TestCase):
    __test__ = False  # for the runner alone, not for pytest

    def test_passing(self):
        self.assertEqual(1, 1)

    def test_failing(self):
        print("what the test printed")
        self.assertEqual(1, 2)

    def test_skipped(self):
        self.skipTest("not today")

    def test_crashing(self):
        os._exit(3)

    def test_hanging(self):
        time.sleep(100)

    @unittest.expectedFailure
    def test_failing_as_expected(self):
        self.fail()


def run(test, limit=300):
    [outcome] = runner.run_tests(Cases, [test], jobs=2, limit=limit)
    assert outcome.test == test
    return outcome.result, outcome.text


def test_outcomes_are_what_the_tests_did():
    assert run("test_passing") == ("passed", "")
    assert run("test_skipped") == ("skipped", "not today")
    assert run("test_crashing") == ("failed", "its process ended with exit code 3")
    assert run("test_hanging", limit=0.5) == ("failed", "not done after 0.5 s")
    result, text = run("test_failing")
    assert result == "failed" and text.startswith("what the test printed\n") and text.endswith("AssertionError: 1 != 2")
    result, text = run("test_failing_as_expected")
    assert result == "failed" and text.startswith("neither passed nor skipped")


def test_all_tests_run_side_by_side():
    tests = ["test_passing", "test_skipped", "test_failing"]
    outcomes = {outcome.test: outcome.result for outcome in runner.run_tests(Cases, tests, jobs=3, limit=300)}
    assert outcomes == {"test_passing": "passed", "test_skipped": "skipped", "test_failing": "failed"}


def test_what_each_rank_says_is_kept():
    text = ("Traceback (most recent call last):\n  in the test\nRuntimeError: Process 0 exited with error code 10 and exception:\n"
            "ValueError: a\n\nProcess 2 exited with error code -11 and exception:\nnone: it has crashed\n")
    assert runner.errors_of(text) == ("ValueError: a\n\n", "none: it has crashed\n")
    assert runner.errors_of("AssertionError: 1 != 2\n") == ("AssertionError: 1 != 2\n",)
    [outcome] = runner.run_tests(Cases, ["test_failing"], jobs=1, limit=300)
    assert [error.splitlines()[-1] for error in outcome.errors] == ["AssertionError: 1 != 2"]


def test_a_crash_beside_an_exception_is_told():
    import suite

    text = "Process 0 exited with error code 10 and exception:\nValueError: a\n\n" + suite.crashes([10, -11, -15, None, 0], 10)
    assert runner.errors_of(text) == ("ValueError: a\n\n", "none: it has crashed\n")


def listing_of(tmp_path, text):
    path = tmp_path / "explained.txt"
    path.write_text(text)
    return path


def test_an_explanation_holds_only_where_it_says_and_only_for_a_failure(tmp_path):
    listing = listing_of(tmp_path, "# comment\n\ntest_a cohort,shm cpu 2,3 fails It is red.\n    Error: [a-z]+\n"
                                   "test_c * * * left-out It is long.\n")
    [line, left_out] = explained.read(listing)
    assert explained.find([line], "test_a", "shm", "cpu", 3) is line
    for elsewhere in (("test_b", "shm", "cpu", 3), ("test_a", "gloo", "cpu", 3), ("test_a", "shm", "cuda-as-cpu", 3),
                      ("test_a", "shm", "cpu", 8)):
        assert explained.find([line], *elsewhere) is None
    failed, passed = runner.Outcome("test_a", "failed", "why", errors=("in a\nError: why\n",)), runner.Outcome("test_a", "passed")
    assert explained.judge(failed, line) == ("explained", "It is red.")
    assert explained.judge(failed, None) == ("failed", "why")
    assert explained.judge(runner.Outcome("test_c", "failed", "left out"), left_out) == ("explained", "It is long.")
    assert explained.judge(passed, None) == ("passed", "")
    assert explained.judge(passed, line) == (
        "failed", "explained.txt:3 says that it fails, but it passed: remove the line")


@pytest.mark.parametrize("other", ["Error: 7\n", "Error: why not\n", "An Error: why\n", "not done after 120 s\n", ""])
def test_another_failure_than_the_explained_one_fails(tmp_path, other):
    [line] = explained.read(listing_of(tmp_path, "test_a * * * fails It is red.\n    Error: [a-z]+\n"))
    outcome = runner.Outcome("test_a", "failed", "end", errors=("Error: why\n", other))
    assert explained.judge(outcome, line) == (
        "failed", f"explained.txt:1 has no line 'Error: [a-z]+' in what it says:\n{other.strip()}")


@pytest.mark.parametrize("text, refusal", [
    ("test_a cohort cpu 2 fails\n",
     "explained.txt:1: needs `test backends modes ranks fails|left-out reason`, got: test_a cohort cpu 2 fails"),
    ("\ntest_a * * * fails Red.\ntest_b * * * fails Red.\n    Error\n",
     "explained.txt:2: test_a needs a line below it with what it says when it fails"),
    ("test_a * * * left-out Red.\n    Error\n",
     "explained.txt:1: test_a is not run, and cannot have what it says when it fails"),
    ("test_a * * * fails Red.\n    Error\n    More\n", "explained.txt:3: belongs to no test: More"),
    ("    Error\n", "explained.txt:1: belongs to no test: Error"),
])
def test_a_faulty_list_is_refused_message(tmp_path, text, refusal):
    with pytest.raises(SystemExit) as refused:
        explained.read(listing_of(tmp_path, text))
    assert str(refused.value) == refusal


def test_other_numbers_than_those_of_parity_fail_the_run(tmp_path):
    stated = {("cpu", 2): (88, 91)}
    assert counts.complaint(stated, "cpu", 2, 88, 91) == counts.complaint(stated, "cpu", 2, None, 91) == ""
    assert counts.complaint(stated, "cpu", 2, 89, 91) == "cpu at 2 ranks: 89 of 91 tests passed; behaviors.md says that 88 of 91 do"
    assert counts.complaint(stated, "cpu", 2, 88, 90) == "cpu at 2 ranks: 88 of 90 tests passed; behaviors.md says that 88 of 91 do"
    assert counts.complaint(stated, "cpu", 2, None, 90) == "cpu at 2 ranks: 90 tests ran; behaviors.md says that 91 run"
    changed = tmp_path / "behaviors.md"
    changed.write_text(counts.PARITY.read_text().replace("88 of 91 at 3", "87 of 91 at 3"))
    assert counts.read(changed)["cpu", 3] == (87, 91)
    changed.write_text("- **another** (16): 88 of 91 pass at 2 ranks. Status: yes.\n")
    with pytest.raises(SystemExit, match="^behaviors.md: needs one entry "):
        counts.read(changed)


def test_parity_states_the_numbers_of_every_run():
    assert set(counts.read()) == {each for selection in counts.SELECTIONS.values() for each in selection}


def run_suite(tmp_path, backend, test, listing):
    path = listing_of(tmp_path, listing)
    command = [sys.executable, HERE / "run.py", "--backend", backend, "--modes", "cpu", "--world-sizes", "2",
               "--tests", test, "--explained", path]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600)
    rows = [line.split() for line in ended.stdout.splitlines() if line.startswith("cpu ")]
    return ended.returncode, rows[0][1:6] if rows else [], ended.stdout


def test_the_suite_passes_on_gloo(tmp_path):
    status, row, _ = run_suite(tmp_path, "gloo", "test_get_rank$|test_all_to_all$", "")
    assert (status, row) == (0, ["2", "1", "0", "0", "1"])


def test_a_failing_test_fails_the_run(tmp_path):
    status, row, output = run_suite(tmp_path, "gloo-renamed", "test_get_rank$|test_monitored_barrier_gloo$", "")
    assert (status, row) == (1, ["2", "1", "0", "1", "0"])
    assert "FAILED test_monitored_barrier_gloo, cpu, 2 ranks" in output
    assert "  | ValueError: monitored_barrier is only implemented for GLOO backend.\n" in output


def test_a_line_that_is_out_of_date_fails_the_run(tmp_path):
    status, row, output = run_suite(tmp_path, "gloo", "test_get_rank$", "test_get_rank gloo * * fails No reason.\n    Error\n")
    assert (status, row) == (1, ["2", "0", "0", "1", "0"])
    assert "explained.txt:1 says that it fails, but it passed: remove the line" in output
    status, _, _ = run_suite(tmp_path, "gloo", "test_get_rank$", "test_gone gloo * * fails No reason.\n    Error\n")
    assert status == 1


def test_a_failure_that_says_something_else_fails_the_run(tmp_path):
    lines = ("test_monitored_barrier_gloo * * * fails By name.\n    ValueError: monitored_barrier is only implemented for GLOO backend\\.\n"
             "test_monitored_barrier_gloo_subgroup * * * fails By name.\n    ValueError\n")
    status, row, output = run_suite(tmp_path, "gloo-renamed", "test_get_rank$|test_monitored_barrier_gloo(_subgroup)?$", lines)
    assert (status, row) == (1, ["2", "1", "1", "1", "0"])
    assert "  | explained.txt:3 has no line 'ValueError' in what it says:\n" in output
