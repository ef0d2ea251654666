"""What is run of the tests: changed_tests.py, heavy_parts.py, and pytest's --part."""
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools/dev"))

import changed_tests
import heavy_parts
import write_timings

FOLDERS = changed_tests.folders_of_tests()


def programs_and_folders(*paths):
    expression, python, left_out = changed_tests.choose(paths, FOLDERS)
    return set(expression.removeprefix("^(").split(")")[0].split("|")), set(python), left_out


def test_a_layer_reaches_what_stands_on_it_and_nothing_below():
    programs, python, left_out = programs_and_folders("cohort/dtensor/api/dtensor.cpp")
    assert {"dtensor", "parallel", "checkpoint", "train", "devices"} <= programs
    assert {"tests/e2e/parallel", "tests/e2e/dtensor", "tests/e2e/examples"} <= python
    assert not programs & {"comm", "mesh", "store", "shm"} and {"comm", "mesh", "store"} <= set(left_out)


def test_layers_stand_on_each_other_over_several_steps():
    programs, _, _ = programs_and_folders("cohort/shm/engine/group.cpp")
    assert {"shm", "comm", "mesh", "dtensor", "models"} <= programs and "store" not in programs


def test_a_test_reaches_itself():
    assert programs_and_folders("tests/mesh/shard_test.cpp")[:2] == ({"mesh"}, set())
    assert programs_and_folders("tests/e2e/parallel/goldens/zero_test.safetensors")[:2] == ({"none"}, {"tests/e2e/parallel"})
    assert programs_and_folders("tests/e2e/programs/train/trainer_program.cpp")[:2] == ({"none"}, {"tests/e2e/train"})


def test_text_for_readers_reaches_no_program():
    expected = ({"none"}, {"tests/tools"})
    assert all(programs_and_folders(path)[:2] == expected for path in ["HACKING.md", "cohort/shm/README.md", "tests/README.md"])


@pytest.mark.parametrize("path", ["cmake/CohortTorch.cmake", "CMakeLists.txt", "tests/support/rank_threads.cpp", "a_new_folder/file"])
def test_what_may_reach_everything_does(path):
    assert programs_and_folders("docs/parity.md", path)[2] == []


def test_every_folder_of_tests_is_known():
    known = {*changed_tests.STANDS_ON, *(name for layer in changed_tests.check_layers.BELOW for name in (layer, f"e2e/{layer}")), "mutants"}
    assert set(FOLDERS) <= known


def test_heavy_parts_take_turns_and_a_change_has_its_own_first():
    names = [[part.name for part, _ in heavy_parts.order(f"{n:08x}", [])] for n in range(len(heavy_parts.PARTS))]
    assert {each[0] for each in names} == {part.name for part in heavy_parts.PARTS}
    assert all(sorted(each) == sorted(names[0]) for each in names)
    asked = heavy_parts.order("00000000", ["cohort/shm/engine/group.cpp"])
    assert [(part.name, is_asked) for part, is_asked in asked[:3]] == [("tsan", 1), ("asan", 1), ("third_1", 0)]


def test_heavy_parts_name_commands_that_exist():
    for part in heavy_parts.PARTS:
        for word in part.command.split():
            assert not word.startswith("tools/") or (ROOT / word).exists(), part.name


def test_parts_of_pytest_are_all_of_it(tmp_path):
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "timings.json").write_text('{"ctest": {}, "pytest": {"c_test.py": 3, "d_test.py": 7}}')
    for name in "abcdefgh":
        (tmp_path / f"{name}_test.py").write_text("def test_one(): pass\ndef test_two(): pass\n")

    def collected(*options):
        shown = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options], cwd=tmp_path,
                               capture_output=True, text=True)
        return [line for line in shown.stdout.splitlines() if "::" in line]

    every = collected()
    assert [line.split("::")[0] for line in every[:4]] == ["d_test.py", "d_test.py", "c_test.py", "c_test.py"]
    parts = [collected("--part", f"{k}/3") for k in (1, 2, 3)]
    assert sorted(sum(parts, [])) == sorted(every) and all(parts)


def test_timings_are_those_of_the_last_run(tmp_path):
    (tmp_path / "ctest.xml").write_text('<testsuite><testcase name="a.B.Long" time="12.34"/><testcase name="a.B.Fast" time="0.1"/></testsuite>')
    (tmp_path / "pytest.xml").write_text('<testsuites><testsuite><testcase classname="tests.e2e.a_test" time="1.5"/>'
                                         '<testcase classname="tests.e2e.a_test" time="1.0"/></testsuite></testsuites>')
    old = {"ctest": {"a.B.Fast": 7.0, "a.B.Other": 2.0}, "pytest": {"tests/gone_test.py": 1.0, "tests/conftest.py": 4.0}}
    assert write_timings.merged(old, tmp_path) == {"ctest": {"a.B.Long": 12.3, "a.B.Other": 2.0},
                                                   "pytest": {"tests/conftest.py": 4.0, "tests/e2e/a_test.py": 2.5}}
