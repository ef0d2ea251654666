"""Goldens (golden.py): when a file is used, when Python computes instead, and what a wrong one leads to."""
import json
import os
import subprocess
import sys
import warnings

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import golden_file
from golden import Goldens, GoldenWarning
from harness import SOURCE

RANKS = [{"a": torch.arange(6.).view(2, 3), "b": torch.tensor([1.5, -2], dtype=torch.float64), "step": torch.tensor(3)},
         {"a": torch.arange(6.).view(2, 3), "large": torch.arange(5000.).view(50, 100)}]


def require(what, got, wanted):
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-3, msg=lambda _: what)


class Case:
    """A test with a script of its own, which has not run yet."""

    def __init__(self, folder):
        self.test, self.script, self.helper = (folder / name for name in ("net_test.py", "net_python_rank.py", "net_helper.py"))
        self.script.write_text("import os\nfrom net_helper import Net\n")
        self.helper.write_text("class Net: pass\n")
        self.path = folder / "goldens/net_test.safetensors"
        self.ranks, self.runs = RANKS, 0

    def compute(self):
        self.runs += 1
        return self.ranks

    def ask(self, arguments=("clip",), release="2.13.0+cpu", **options):
        return Goldens(release=release, **options)(self.test, self.compute, require, [self.script], arguments, every=7)


@pytest.fixture
def case(tmp_path):
    """With a golden."""
    case = Case(tmp_path)
    case.ask(is_written=True)
    case.runs = 0
    return case


def test_a_golden_is_read_without_python(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oracle = case.ask()
    assert case.runs == 0 and not oracle.is_live
    oracle.compare(RANKS)
    assert case.path.stat().st_size < 5000, "every seventh number, and what ranks have alike once"
    oracle.only("large").compare([{"large": RANKS[1]["large"]}])


@pytest.mark.parametrize("rank, name", [(0, "a"), (0, "b"), (0, "step"), (1, "a"), (1, "large")])
def test_a_wrong_number_or_shape_is_red(case, rank, name):
    for wrong in (RANKS[rank][name] + 1, RANKS[rank][name].clone()[None]):
        ours = [dict(each) for each in RANKS]
        ours[rank][name] = wrong
        with pytest.raises(AssertionError, match=f"^rank {rank}: {name}"):
            case.ask().compare(ours)
    ours[rank].pop(name)
    with pytest.raises(AssertionError, match=f"^rank {rank}"):
        case.ask().compare(ours)
    with pytest.raises(AssertionError):
        case.ask().compare(RANKS[:1])


def test_thinning_meets_every_row_and_column(case):
    for row, column in [(row, 3) for row in range(50)] + [(7, column) for column in range(100)]:
        ours = [dict(each) for each in RANKS]
        large = ours[1]["large"] = RANKS[1]["large"].clone()
        (large[row] if column == 3 else large[:, column]).add_(1)
        with pytest.raises(AssertionError, match="^rank 1: large"):
            case.ask().compare(ours)


def change_script(case):
    case.script.write_text(case.script.read_text() + "# other\n")


def change_helper(case):
    case.helper.write_text("class Net: other = 1\n")


def remove(case):
    case.path.unlink()


@pytest.mark.parametrize("change, options, why", [
    (change_script, {}, "changed since: net_python_rank.py"),
    (change_helper, {}, "changed since: net_helper.py"),
    (remove, {}, "there is none"),
    (None, {"release": "2.14.0"}, "it is of PyTorch 2.13.0, not 2.14.0"),
    (None, {"arguments": ["clip", "nested"]}, "it is of other arguments"),
])
@pytest.mark.parametrize("is_live", [False, True])
def test_an_outdated_golden_is_not_used_and_that_is_said(case, change, options, why, is_live):
    if change:
        change(case)
    with pytest.warns(GoldenWarning) as said:
        oracle = case.ask(is_live=is_live, **options)
    assert [str(one.message) for one in said] == [
        f"{case.path}: {why}. So Python computes; tools/dev/write_goldens.py {case.test} writes it."]
    assert case.runs == 1 and oracle.is_live
    oracle.compare(RANKS)


@pytest.mark.parametrize("damage", [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(b"\xff" * 100),
    lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"),
    lambda path: save_file(load_file(path), path),
    lambda path: save_file(load_file(path), path, {"golden": "{}"}),
    lambda path: save_file(load_file(path), path, {"golden": '{"origin": 1, "index": []}'}),
])
@pytest.mark.parametrize("is_live", [False, True])
def test_a_damaged_golden_is_an_error_message(case, damage, is_live):
    damage(case.path)
    with pytest.raises(golden_file.BadGolden) as error:
        case.ask(is_live=is_live)
    assert str(error.value) == f"{case.path} is no whole golden. Write it anew: tools/dev/write_goldens.py {case.test}"
    assert case.runs == 0
    case.ask(is_written=True)
    case.ask().compare(RANKS)


def test_live_python_and_the_golden_must_be_alike(case):
    assert case.ask(is_live=True).is_live and case.runs == 1
    case.ranks = [RANKS[0], RANKS[1] | {"large": RANKS[1]["large"] + 0.01}]
    with pytest.raises(AssertionError) as error:
        case.ask(is_live=True)
    assert str(error.value) == (f"{case.path} is not what Python computes now, though release and scripts are the same. "
                                f"Find out why; tools/dev/write_goldens.py {case.test} writes it anew.\nrank 1: large")


@pytest.mark.tier_all
def test_pytest_says_what_is_outdated_and_fails_for_a_value_that_is_off(case, tmp_path):
    """With the options and the fixture of the suite, in runs of its own."""
    case.test.write_text("""import pathlib
import torch
def test_numbers(golden):
    def require(what, got, wanted):
        assert torch.equal(got, wanted), what
    here = pathlib.Path(__file__)
    oracle = golden(here, lambda: [{"a": torch.ones(2)}], require, [here.with_name("net_helper.py")])
    oracle.compare([{"a": torch.ones(2)}])
""")
    (tmp_path / "conftest.py").write_text("from tests_conftest import *\nfrom e2e_conftest import golden\n")
    for name in ("tests", "tests/e2e"):
        (tmp_path / f"{name.split('/')[-1]}_conftest.py").write_bytes((SOURCE / name / "conftest.py").read_bytes())
    (tmp_path / "timings.json").write_text(json.dumps({"pytest": {}}))

    def run(*options):
        environment = {name: value for name, value in os.environ.items() if name != "COHORT_TEST_LIVE" and not name.startswith("PYTEST")}
        environment["PYTHONPATH"] = str(SOURCE / "tests/e2e")
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "golden", *options, case.test],
                              env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout + done.stderr

    code, out = run()
    assert code == 0 and "changed since" in out and "So Python computes" in out, out
    assert run("--write-goldens")[0] == 0
    code, out = run()
    assert code == 0 and "So Python computes" not in out, out
    assert run("--live")[0] == 0
    with safe_open(case.path, "pt") as file:
        metadata = file.metadata()
    save_file({"float32": torch.tensor([1, 1.5])}, case.path, metadata)
    for options, text in (([], "AssertionError: rank 0: a"), (["--live"], "is not what Python computes now")):
        code, out = run(*options)
        assert code == 1 and text in out, out
