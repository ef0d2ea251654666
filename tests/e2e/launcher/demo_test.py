"""cohort demo: what it trains, what it leaves behind, and what it says where its program is missing."""
import os
import shutil
import subprocess

import pytest

from harness import BUILD

COHORT = BUILD.resolve() / "bin" / "cohort"


@pytest.fixture
def demo(tmp_path):
    temporary, here = tmp_path / "temporary", tmp_path / "here"
    temporary.mkdir()
    here.mkdir()

    def run(*arguments, launcher=COHORT, **variables):
        done = subprocess.run([launcher, "demo", *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=here,
                              env=os.environ | {"TMPDIR": str(temporary)} | variables)
        return done.returncode, done.stdout, done.stderr
    run.temporary, run.here = temporary, here
    return run


def test_trains_and_leaves_nothing_behind(demo):
    code, out, err = demo("--steps", "2", "--eval-windows=2")
    assert code == 0, out + err
    assert "this GPT" in out and ", 2 steps)" in out  # what is said wins over what the demo would say
    assert out.endswith("/train_gpt\ncohort demo removes them; --checkpoint FOLDER keeps them\n")
    assert not list(demo.temporary.glob("cohort-demo-*")) and not list(demo.here.iterdir())


def test_a_folder_for_checkpoints_stays(demo):
    code, out, err = demo("--steps=2", "--eval-windows", "2", "--checkpoint", "kept")
    assert code == 0, out + err
    assert out.endswith("checkpoints: kept\n")
    assert [path.name for path in demo.here.iterdir()] == ["kept"]


def test_a_wrong_argument_is_train_gpts_error_and_nothing_stays(demo):
    code, out, err = demo("--stepz", "2")
    assert code == 1 and "--stepz" in err
    assert not list(demo.temporary.glob("cohort-demo-*"))


def test_without_its_program_message(demo, tmp_path):
    launcher = tmp_path / "cohort"
    shutil.copy2(COHORT, launcher)
    code, out, err = demo(launcher=launcher)
    assert (code, out) == (1, "")
    assert err == (f"[cohort] error: cohort demo needs the program train_gpt, which was not installed with {launcher}\n"
                   "  hint: run make demo in Cohort's source, or install the wheel that make wheel builds\n")


def test_without_a_temporary_folder_message(demo):
    code, out, err = demo(TMPDIR="/nowhere")
    assert (code, out) == (1, "")
    assert err == ("[cohort] error: there is no folder for temporary files\n  hint: set TMPDIR to one, or give --checkpoint FOLDER\n")
