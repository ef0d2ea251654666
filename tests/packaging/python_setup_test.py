"""What a build of the Python package says where something is missing, by full text."""
import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest
import setuptools

SOURCE = pathlib.Path(os.environ.get("COHORT_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
PIP = "pip install --no-build-isolation ."


def build_error(prelude="", flags=(), **variables):
    """The end of what `setup.py build` prints; `prelude` runs before it in the same Python."""
    code = f"{prelude}\nimport runpy, sys\nsys.argv = ['setup.py', '-q', 'build']\nrunpy.run_path('setup.py', run_name='__main__')"
    environment = {name: value for name, value in os.environ.items() if name not in ("CXX", "COHORT_BUILD_DIR", "PYTHONPATH")}
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, timeout=300, cwd=SOURCE,
                          env=environment | variables)
    assert done.returncode == 1, done.stdout + done.stderr
    return "error: " + done.stderr.split("error: ", 1)[-1]


def program(folder, name, text):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_packages(tmp_path):
    """A folder with setuptools and nothing else."""
    packages = pathlib.Path(setuptools.__path__[0]).parent
    folder = tmp_path / "packages"
    folder.mkdir()
    for path in [packages / "_distutils_hack", *packages.glob("setuptools*")]:
        (folder / path.name).symlink_to(path)
    return folder


def test_no_torch_message(bare_packages):
    assert build_error(flags=["-S"], PYTHONPATH=str(bare_packages)) == (
        f"error: torchcohort cannot be built: it is compiled against the PyTorch of the environment, and {sys.executable} "
        f'has none\n  hint: pip install "torch==2.13.*", then {PIP} '
        "(without --no-build-isolation pip hides the packages of the environment)\n")


def test_unsupported_torch_message(bare_packages):
    (bare_packages / "torch").mkdir()
    (bare_packages / "torch/__init__.py").touch()
    (bare_packages / "torch-2.10.1.dist-info").mkdir()
    (bare_packages / "torch-2.10.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.10.1+cpu\n")
    assert build_error(flags=["-S"], PYTHONPATH=str(bare_packages)) == (
        f"error: torchcohort cannot be built: PyTorch 2.10.1+cpu of {sys.executable} is not a release that Cohort supports "
        f'(2.11, 2.12, 2.13)\n  hint: pip install "torch==2.13.*", then {PIP}\n')


def test_old_setuptools_message():
    assert build_error("import setuptools; setuptools.__version__ = '66.1.1'") == (
        "error: torchcohort cannot be built: setuptools 66.1.1 is too old\n"
        f'  hint: pip install "setuptools>=77", then {PIP}\n')


def test_no_cmake_message(tmp_path):
    assert build_error(PATH=str(tmp_path)) == (
        "error: torchcohort cannot be built: CMake is missing\n"
        '  hint: pip install "cmake>=3.25", or your distribution\'s package\n')


@pytest.mark.parametrize("text, problem", [
    ("echo 'cmake version 3.18.4'", "is 3.18.4, and CMake 3.25 or newer is needed"),
    ("echo 'no module named cmake' >&2; exit 1", "does not run: no module named cmake"),
])
def test_unusable_cmake_message(tmp_path, text, problem):
    cmake = program(tmp_path / "bin", "cmake", text)
    assert build_error(PATH=str(cmake.parent)) == (
        f"error: torchcohort cannot be built: {cmake} {problem}\n"
        '  hint: pip install "cmake>=3.25", or your distribution\'s package\n')


def test_no_compiler_message(tmp_path):
    cmake = program(tmp_path / "bin", "cmake", "echo 'cmake version 3.25.1'")
    hint = "\n  hint: install GCC 12 or newer (on Debian and Ubuntu: apt-get install build-essential), or set CXX to one\n"
    assert build_error(PATH=str(cmake.parent)) == (
        f"error: torchcohort cannot be built: there is no C++ compiler (c++, g++, clang++){hint}")
    assert build_error(CXX="/nowhere/g++ -m64") == (
        f"error: torchcohort cannot be built: there is no C++ compiler (/nowhere/g++){hint}")


def test_no_python_headers_message(tmp_path):
    prelude = "import sysconfig; real = sysconfig.get_path; sysconfig.get_path = lambda name, *rest: "
    assert build_error(f"{prelude}'{tmp_path}' if name == 'include' else real(name, *rest)") == (
        f"error: torchcohort cannot be built: the headers of {sys.executable} are missing: no Python.h in {tmp_path}\n"
        "  hint: on Debian and Ubuntu: apt-get install python3-dev\n")


def test_other_machine_message():
    assert build_error("import sysconfig; sysconfig.get_platform = lambda: 'macosx-14.0-arm64'") == (
        "error: torchcohort cannot be built: this is macosx-14.0-arm64, and Cohort runs on linux-x86_64 only\n"
        "  hint: use a machine with Linux on x86-64\n")


def test_build_folder_that_is_none_message(tmp_path):
    assert build_error(COHORT_BUILD_DIR=str(tmp_path)) == (
        f"error: torchcohort cannot be built: COHORT_BUILD_DIR={tmp_path} is not a build folder: it has no CMakeCache.txt\n"
        f"  hint: cmake -S {SOURCE} -B {tmp_path} -DCOHORT_BUILD_PYTHON=ON first, or unset COHORT_BUILD_DIR\n")


def test_failed_cmake_message(tmp_path):
    cmake = program(tmp_path / "bin", "cmake", "case $1 in --version) echo 'cmake version 3.25.1' ;; *) exit 7 ;; esac")
    (tmp_path / "CMakeCache.txt").touch()
    assert build_error(PATH=f"{cmake.parent}:{os.environ['PATH']}", COHORT_BUILD_DIR=str(tmp_path)) == (
        "error: torchcohort cannot be built: CMake ended with 7\n"
        "  hint: the reason stands above; what a build needs: tools/dev/setup.sh installs it\n")


@pytest.mark.parametrize("made, problem, hint", [
    ("touch $6/torchcohort/_C.cpython-39-x86_64-linux-gnu.so",
     "COHORT_BUILD_DIR={folder} was configured for another Python: it made _C.cpython-39-x86_64-linux-gnu.so, and {python} "
     "needs _C{suffix}",
     "configure it with -DPython_EXECUTABLE={python}, or unset COHORT_BUILD_DIR"),
    ("touch $6/torchcohort/_C{suffix}; echo \"raise SystemExit('built for PyTorch 2.11')\" > $6/torchcohort/__init__.py",
     "the finished package does not work with {python}:\nbuilt for PyTorch 2.11",
     "COHORT_BUILD_DIR was configured for another PyTorch; unset it"),
])
def test_build_folder_of_another_python_message(tmp_path, made, problem, hint):
    names = {"folder": tmp_path, "python": sys.executable, "suffix": sysconfig.get_config_var("EXT_SUFFIX")}
    cmake = program(tmp_path / "bin", "cmake", f"""case $1 in
      --version) echo 'cmake version 3.25.1' ;;
      --install) mkdir -p $6/torchcohort; {made.replace("{suffix}", names["suffix"])} ;;
    esac""")
    (tmp_path / "CMakeCache.txt").touch()
    assert build_error(PATH=f"{cmake.parent}:{os.environ['PATH']}", COHORT_BUILD_DIR=str(tmp_path)) == (
        f"error: torchcohort cannot be built: {problem.format(**names)}\n  hint: {hint.format(**names)}\n")
