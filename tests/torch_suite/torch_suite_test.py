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

import explained  # noqa: E402
import runner  # noqa: E402


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


def run(test, limit=30):
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
    outcomes = {outcome.test: outcome.result for outcome in runner.run_tests(Cases, tests, jobs=3, limit=30)}
    assert outcomes == {"test_passing": "passed", "test_skipped": "skipped", "test_failing": "failed"}


def test_an_explanation_holds_only_where_it_says_and_only_for_a_failure(tmp_path):
    listing = tmp_path / "explained.txt"
    listing.write_text("# comment\n\ntest_a cohort,shm cpu 2,3 fails It is red.\n")
    [line] = explained.read(listing)
    assert explained.find([line], "test_a", "shm", "cpu", 3) is line
    for elsewhere in (("test_b", "shm", "cpu", 3), ("test_a", "gloo", "cpu", 3), ("test_a", "shm", "cuda-as-cpu", 3),
                      ("test_a", "shm", "cpu", 8)):
        assert explained.find([line], *elsewhere) is None
    failed, passed = runner.Outcome("test_a", "failed", "why"), runner.Outcome("test_a", "passed")
    assert explained.judge(failed, line) == ("explained", "It is red.")
    assert explained.judge(failed, None) == ("failed", "why")
    assert explained.judge(passed, None) == ("passed", "")
    assert explained.judge(passed, line) == (
        "failed", "explained.txt:3 says that it fails, but it passed: remove the line")


def test_a_line_without_a_reason_is_refused(tmp_path):
    listing = tmp_path / "explained.txt"
    listing.write_text("test_a cohort cpu 2 fails\n")
    with pytest.raises(SystemExit) as refusal:
        explained.read(listing)
    assert str(refusal.value) == (
        "explained.txt:1: needs `test backends modes ranks fails|left-out reason`, got: test_a cohort cpu 2 fails")


def run_suite(tmp_path, backend, test, listing):
    path = tmp_path / "explained.txt"
    path.write_text(listing)
    command = [sys.executable, HERE / "run.py", "--backend", backend, "--modes", "cpu", "--world-sizes", "2",
               "--tests", test, "--explained", path]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=200)
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
    status, row, output = run_suite(tmp_path, "gloo", "test_get_rank$", "test_get_rank gloo * * fails No reason.\n")
    assert (status, row) == (1, ["2", "0", "0", "1", "0"])
    assert "explained.txt:1 says that it fails, but it passed: remove the line" in output
    status, _, _ = run_suite(tmp_path, "gloo", "test_get_rank$", "test_gone gloo * * fails No reason.\n")
    assert status == 1
