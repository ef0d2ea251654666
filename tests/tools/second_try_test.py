"""tools/dev/run_tests.sh and second_try.py: who gets a second try, beside what, with which seeds. Small projects, real runners."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.tier_all  # it builds small projects

ROOT = pathlib.Path(__file__).resolve().parents[2]
CMAKE = """cmake_minimum_required(VERSION 3.20)
project(small NONE)
enable_testing()
foreach(name IN ITEMS Early/a Flake/a Fault/a Late/a Last/a)
  add_test(NAME "small.${name}  # GetParam() = a" COMMAND bash "${PROJECT_SOURCE_DIR}/run.sh" "small.${name}")
  set_tests_properties("small.${name}  # GetParam() = a" PROPERTIES LABELS gate)
endforeach()
"""
PRESETS = """{"version": 3, "configurePresets": [{"name": "release", "generator": "Unix Makefiles", "binaryDir": "${sourceDir}/build"}],
 "testPresets": [{"name": "release", "configurePreset": "release"}]}
"""
# Notes that it ran; fails as often as its file in failures/ says.
RUN = """cd "$(dirname "$0")"
echo "$1 $COHORT_STRESS_SEED/$COHORT_TEST_SEED" >>runs.txt
file=failures/${1//\\//-}
left=$(cat "$file" 2>/dev/null || echo 0)
sleep 0.2
((left == 0)) && exit 0
echo $((left - 1)) >"$file"
exit 1
"""
PYTHON = """import pathlib
import subprocess
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
@pytest.mark.parametrize("value", ["a"])
def test_{name}(value):
    assert subprocess.run(["bash", ROOT / "run.sh", "{name}"]).returncode == 0
"""
ALONE = "pytestmark = pytest.mark.alone\n"
FLAKES = """# comment
ctest: small.Flake/a  Another's fault.
pytest: tests/flake_test.py::test_flake[a]  A busy network.
alone: tests/alone_test.py::test_alone[a]  A slow disk.
"""


@pytest.fixture
def project(tmp_path):
    """A project of five tests of ctest, four of pytest; (failures by name, options) -> (exit code, output, runs in order)."""
    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    for name, text in {"CMakeLists.txt": CMAKE, "CMakePresets.json": PRESETS, "run.sh": RUN, "tools/dev/known_flakes.txt": FLAKES,
                       "tools/dev/expected_skips.txt": "", "pytest.ini": "[pytest]\nmarkers =\n    alone: nothing beside\n    tier_all: not in the gate\n"}.items():
        write(name, text)
    for name in ("early", "flake", "late"):
        write(f"tests/{name}_test.py", PYTHON.format(name=name))
    write("tests/alone_test.py", PYTHON.format(name="alone") + ALONE)
    for name in ("run_tests.sh", "second_try.py", "count_skips.py"):
        shutil.copy(ROOT / "tools/dev" / name, tmp_path / "tools/dev")
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run(["cmake", "--preset", "release"], cwd=tmp_path, check=True, capture_output=True)

    def run(failures, **env):
        for name, times in failures.items():
            write("failures/" + name.replace("/", "-"), str(times))
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("COHORT_", "PYTEST_"))}
        ended = subprocess.run(["bash", tmp_path / "tools/dev/run_tests.sh"], env={**environment, **env}, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        runs = [line.split() for line in (tmp_path / "runs.txt").read_text().splitlines()]
        return ended.returncode, ended.stdout, runs
    run.root = tmp_path
    return run


def test_known_flakes_are_tried_again_with_the_same_seeds_and_beside_others(project):
    code, output, runs = project({"small.Flake/a": 1, "flake": 1, "alone": 1}, COHORT_SECOND_TRY="1")
    assert code == 0, output
    for name in ("ctest: small.Flake/a: Another's fault.", "pytest: tests/flake_test.py::test_flake[a]: A busy network.",
                 "alone: tests/alone_test.py::test_alone[a]: A slow disk."):
        assert f"\npassed on the second try only: {name}\n" in output
    assert len({seeds for _, seeds in runs}) == 1 and all(seed.isdigit() for seed in runs[0][1].split("/"))
    first, second = runs[:9], [name for name, _ in runs[9:]]
    assert sorted(name for name, _ in first) == sorted(
        ["small.Early/a", "small.Flake/a", "small.Fault/a", "small.Late/a", "small.Last/a", "early", "flake", "late", "alone"])
    # Others ran beside each, but nothing beside the one that was alone.
    ctests, pytests = [name for name in second if name.startswith("small.")], [name for name in second if name in ("early", "flake", "late")]
    assert second == [*ctests, *pytests, "alone"]
    assert ctests.count("small.Flake/a") == 1 and len(ctests) >= 2
    assert pytests.count("flake") == 1 and len(pytests) >= 2


def test_another_failure_fails_and_nothing_is_tried_again(project):
    code, output, runs = project({"small.Flake/a": 1, "small.Fault/a": 1, "early": 1}, COHORT_SECOND_TRY="1", COHORT_STRESS_SEED="7")
    assert code == 1
    assert ("=== no second try: not in tools/dev/known_flakes.txt:\n  ctest: small.Fault/a\n"
            "  pytest: tests/early_test.py::test_early[a]\n") in output
    assert len(runs) == 9
    assert "\nseeds:  COHORT_STRESS_SEED=7 COHORT_TEST_SEED=" in output and output.endswith("FAILED (full output: build/test-logs/)\n")
    assert (project.root / "build/test-logs/tests-failed.txt").read_text().splitlines() == [
        "ctest: small.Flake/a", "ctest: small.Fault/a", "pytest: tests/early_test.py::test_early[a]"]


def test_a_flake_that_fails_twice_fails(project):
    code, output, runs = project({"small.Flake/a": 2, "flake": 1}, COHORT_SECOND_TRY="1")
    assert code == 1
    assert "=== a second try of ctest: small.Flake/a\n" in output and "passed on the second try" not in output
    assert [name for name, _ in runs].count("small.Flake/a") == 2 and [name for name, _ in runs].count("flake") == 1


def test_only_ci_tries_again_and_only_what_names_a_test(project):
    code, _, runs = project({"small.Flake/a": 1})
    assert (code, len(runs)) == (1, 9)
    script = [sys.executable, project.root / "tools/dev/second_try.py", "build/test-logs", "3"]
    refused = subprocess.run([*script, "pytest"], stdout=subprocess.PIPE, text=True)
    assert (refused.returncode, refused.stdout) == (
        1, "=== no second try: not in tools/dev/known_flakes.txt:\n  pytest, which names no test\n")
    (project.root / "tools/dev/known_flakes.txt").write_text("small.Flake/a  It fails.\n")
    refused = subprocess.run([*script, "ctest"], stderr=subprocess.PIPE, text=True)
    assert (refused.returncode, refused.stderr) == (
        1, "known_flakes.txt:1: needs `runner: name  reason`, two spaces between\n")


def test_every_known_flake_is_a_test():
    sys.path.insert(0, str(ROOT / "tools/dev"))
    import second_try

    build = os.environ.get("COHORT_BINARY_DIR", ROOT / "build")
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], stdout=subprocess.PIPE, text=True, check=True).stdout
    tests = {line.split(": ", 1)[1].split("  #")[0].strip() for line in listed.splitlines() if ": " in line}
    for name in second_try.read_flakes():
        runner, _, test = name.partition(": ")
        file, _, function = test.partition("::")
        is_there = test in tests if runner == "ctest" else f"def {function.split('[')[0]}(" in (ROOT / file).read_text()
        assert is_there, f"known_flakes.txt names {name}, and there is no such test"
