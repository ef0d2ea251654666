"""tools/dev/count_skips.py: what it reads from ctest and pytest, what it says, and when it fails."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="Linux-c++" tests="3" failures="0" disabled="0" skipped="2">
	<testcase name="comm.Device.Missing" classname="comm.Device.Missing" time="0.1" status="run"><system-out>fine</system-out></testcase>
	<testcase name="comm.Nccl.IsMissing" classname="comm.Nccl.IsMissing" time="0.1" status="notrun">
		<skipped message="SKIP_REGULAR_EXPRESSION matched"/>
		<system-out>[ RUN      ] Nccl.IsMissing
/source/tests/comm/nccl_test.cpp:36: Skipped
a GPU is
present

[  SKIPPED ] Nccl.IsMissing (0 ms)
</system-out>
	</testcase>
	<testcase name="store.Etcd.Get/etcd" classname="store.Etcd.Get/etcd" time="0.1" status="notrun">
		<skipped message="SKIP_REGULAR_EXPRESSION matched"/><system-out></system-out>
	</testcase>
</testsuite>
"""
PYTEST = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" skipped="2" tests="3">
<testcase classname="tests.e2e.kill_test" name="test_etcd[a]" time="0.0"><skipped type="pytest.skip" message="etcd is not installed"
>kill_test.py:185: etcd is not installed</skipped></testcase>
<testcase classname="tests.e2e.kill_test" name="test_etcd[b]" time="0.0"><skipped type="pytest.skip" message="etcd is not installed"
/></testcase><testcase classname="tests.e2e.kill_test" name="test_other" time="0.0" /></testsuite></testsuites>
"""


@pytest.fixture
def count(tmp_path):
    """(exit code, stdout, stderr) for these files and this list of expected skips."""
    def run(expected, **files):
        logs = tmp_path / "logs"
        logs.mkdir()
        for name, text in files.items():
            (logs / name.replace("_", ".")).write_text(text)
        (tmp_path / "expected.txt").write_text(expected)
        done = subprocess.run([sys.executable, ROOT / "tools/dev/count_skips.py", logs, tmp_path / "expected.txt"],
                              capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr.replace(str(tmp_path), "FOLDER")
    return run


def test_names_and_reasons_of_both_runners(count):
    assert count("2  pytest: *.test_etcd[*]  no etcd here\n1  ctest: comm.Nccl.*  needs a GPU\n1  ctest: store.*  no etcd here\n",
                 ctest_xml=CTEST, pytest_xml=PYTEST) == (0, """skipped: 4 of 6 tests
     2  expected  etcd is not installed  (pytest: tests.e2e.kill_test.test_etcd[a] and 1 more)
     1  expected  a GPU is present  (ctest: comm.Nccl.IsMissing)
     1  expected  SKIP_REGULAR_EXPRESSION matched  (ctest: store.Etcd.Get/etcd)
""", "")


def test_a_skip_that_nobody_expects_message(count):
    assert count("# none\n", pytest_xml=PYTEST) == (1, """skipped: 2 of 3 tests
     2  NOT EXPECTED  etcd is not installed  (pytest: tests.e2e.kill_test.test_etcd[a] and 1 more)
""", "error: 2 skipped tests are not expected: install what they need, or name them in expected.txt\n")


def test_more_than_expected_message(count):
    code, _, errors = count("1  pytest: *  no etcd here\n", pytest_xml=PYTEST)
    assert (code, errors) == (1, "error: 2 tests that match pytest: * were skipped, 1 are expected\n")


def test_a_step_left_out_counts(count):
    code, out, errors = count("", pytest_xml=PYTEST.replace("<skipped", "<other").replace("</skipped", "</other"),
                              steps_skipped="aarch64: apt has no qemu-user\n")
    assert code == 1
    assert out == "skipped: 1 of 3 tests\n     1  NOT EXPECTED  apt has no qemu-user  (steps: aarch64)\n"


@pytest.mark.parametrize("name, text, error", [
    ("other_txt", "", "FOLDER/logs has no results of tests\n"),
    ("ctest_xml", CTEST[:200], "FOLDER/logs/ctest.xml: "),
])
def test_missing_results_message(count, name, text, error):
    code, _, errors = count("", **{name: text})
    assert code == 1 and errors.startswith(f"error: {error}")


def test_a_faulty_list_message(count):
    code, _, errors = count("one  pattern  reason\n", ctest_xml=CTEST.replace("<skipped", "<other"))
    assert (code, errors) == (1, "error: FOLDER/expected.txt:1: needs `number  pattern  reason`, two spaces between\n")
