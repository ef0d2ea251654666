"""pip installs the package torchcohort into an environment of its own, its ranks meet, and pip removes all of it."""
import os
import pathlib
import re
import subprocess
import sys
import venv

import pytest
import torch

pytestmark = pytest.mark.tier_all  # it makes a wheel

SOURCE = pathlib.Path(os.environ.get("COHORT_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("COHORT_BINARY_DIR", SOURCE / "build"))

RANK = """
import os, sys, torch, torchcohort
import torch.distributed as dist
assert sys.prefix == sys.argv[1], sys.prefix
assert torchcohort.__file__.startswith(sys.prefix), torchcohort.__file__
dist.init_process_group("cohort")
total = torch.ones(1000) * (dist.get_rank() + 1)
dist.all_reduce(total)
os.write(1, f"sum {int(total[999])}\\n".encode())  # whole lines: both ranks write here
dist.destroy_process_group()
"""


def run(*command, **variables):
    """Never the PYTHONPATH of this process: what is not installed must not be found."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHON_EXEC")}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600,
                          env=environment | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_under(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment that sees the packages of ours, PyTorch and pip among them, but is another place."""
    folder = tmp_path_factory.mktemp("environment").resolve() / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    packages = pathlib.Path(torch.__path__[0]).parent
    (site_packages(folder) / "of_the_tests.pth").write_text(f"{packages}\n")
    (site_packages(folder) / "torch").symlink_to(packages / "torch")  # compiled files look for it beside their package
    return folder


def site_packages(folder):
    return folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@pytest.fixture(scope="module")
def installed(environment):
    before = files_under(environment)
    run(environment / "bin/python", "-m", "pip", "install", "--no-index", "--no-build-isolation", SOURCE,
        COHORT_BUILD_DIR=str(BUILD))
    yield environment
    run(environment / "bin/python", "-m", "pip", "uninstall", "-y", "torchcohort")
    assert files_under(environment) == before


def test_metadata_asks_for_the_release_it_was_built_with(installed):
    metadata = next(site_packages(installed).glob("torchcohort-*.dist-info")) / "METADATA"
    version = re.search(r'COHORT_VERSION "(.+)"', (SOURCE / "cohort/version.h").read_text()).group(1)
    lines = metadata.read_text().splitlines()
    release = ".".join(torch.__version__.split(".")[:2])
    for line in ("Name: torchcohort", f"Version: {version}", f"Requires-Dist: torch=={release}.*", "Requires-Python: >=3.10"):
        assert line in lines


def test_package_holds_each_file_once_and_names_no_folder_of_the_build(installed):
    package = site_packages(installed) / "torchcohort"
    names = files_under(package)
    assert {"__init__.py", "_C.pyi", "py.typed", "bin/cohort", "bin/train_gpt", "include/cohort/cohort.h", "libcohort_extras.so.0", "libcohort_torch_release.so",
            "lib/cmake/Cohort/CohortConfig.cmake"} <= names
    assert len([name for name in names if name.startswith("libcohort.so")]) == 1
    compiled = [name for name in names if name.startswith(("libcohort.so", "libcohort_extras.so", "_C.")) and name != "_C.pyi"]
    assert len(compiled) == 3
    for name in compiled:
        entries = run("readelf", "--dynamic", "--wide", package / name)
        paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", entries)
        assert paths == ["$ORIGIN:$ORIGIN/../torch/lib"], f"{name}: {paths}"


def test_two_ranks_meet_through_the_installed_launcher(installed, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    # Not activated: PATH has other Pythons, and the launcher takes the one it was installed into.
    out = run(installed / "bin/cohort", "run", "--standalone", "--nproc-per-node", "2", script, installed)
    assert out.splitlines() == ["sum 3", "sum 3"]


def test_script_is_the_launcher_itself(installed):
    packaged = site_packages(installed) / "torchcohort/bin/cohort"
    assert (installed / "bin/cohort").read_bytes() == packaged.read_bytes()
    assert packaged.read_bytes().startswith(b"\x7fELF") and os.access(packaged, os.X_OK)


def test_bench_runs_from_the_package_alone(installed, tmp_path):
    out = run(installed / "bin/python", "-m", "torchcohort.bench", "--seconds", "0.05")
    lines = out.splitlines()
    assert lines[0].startswith("2 ranks on ") and lines[1].split() == ["gloo", "cohort", "gain", "alone"]
    assert [line[:26].rstrip() for line in lines[2:]] == ["all_reduce of 4 B", "all_reduce of 1 MiB", "all_reduce of 64 MiB",
                                                         "DDP step, Linear(20, 1)", "DDP step, MLP 4x1024"]


def test_demo_trains_without_a_compiler(installed, tmp_path):
    names = run("env", f"PATH={installed}/bin", "cohort", "demo", "--steps", "2", "--eval-windows", "2", "--checkpoint", tmp_path / "kept")
    assert "this GPT" in names and "2 steps" in names
    assert (tmp_path / "kept").is_dir()


def test_a_cpp_program_is_built_with_the_package(installed, tmp_path):
    """Of all files only those of the package count: tests/packaging/consumer is a project of its own."""
    prefix = run(installed / "bin/python", "-c", "import torchcohort; print(torchcohort.cmake_prefix_path)").strip()
    assert prefix == str(site_packages(installed) / "torchcohort")
    run("cmake", "-S", SOURCE / "tests/packaging/consumer", "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-O0",
        "-DCOHORT_COMPONENTS=extras")
    assert str(SOURCE / "cohort") not in (tmp_path / "build.ninja").read_text()
    run("cmake", "--build", tmp_path)
    run(tmp_path / "plot")
    out = run(installed / "bin/cohort", "run", "--standalone", "--nproc-per-node", "2", tmp_path / "consumer")
    assert re.search(r"rank 1 step 100", out), out
