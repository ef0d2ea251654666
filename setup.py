"""Builds the Python package torchcohort: pip install --no-build-isolation .

Metadata and wheel are made by setuptools; what is compiled, by CMake, whose install component `python` is the package folder.
The package fits the PyTorch release of the environment that pip runs in, and asks for that release.

  CMAKE_ARGS         more arguments for CMake, such as -DCOHORT_NCCL_INCLUDE_DIR=/where/nccl.h/is
  COHORT_BUILD_DIR   an existing build folder to build in, such as build (default: build/pip/<Python>-torch<release>)
"""
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import setuptools
from setuptools.command.build_ext import build_ext
from distutils.command.build_scripts import build_scripts  # setuptools provides it, once imported

SOURCE = pathlib.Path(__file__).resolve().parent
CMAKE_TARGET = "torchcohort"
OLDEST_SETUPTOOLS, OLDEST_CMAKE = 77, (3, 25)
PIP = "pip install --no-build-isolation ."


def fail(what, hint):
    # Not an exception: pip shows it with the trace of its own machinery, and the reader has to find this line.
    raise SystemExit(f"error: torchcohort cannot be built: {what}\n  hint: {hint}")


def first_match(file, pattern):
    return re.search(pattern, (SOURCE / file).read_text()).group(1)


def supported_releases():
    return first_match("cmake/CohortTorch.cmake", r"COHORT_TORCH_TESTED_RELEASES ([^)]*)").split()


def torch_folder_and_release():
    """The PyTorch that this Python would import, found without importing it."""
    supported = supported_releases()
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        fail(f"it is compiled against the PyTorch of the environment, and {sys.executable} has none",
             f'{PIP.split(" --")[0]} "torch=={supported[-1]}.*", then {PIP} '
             "(without --no-build-isolation pip hides the packages of the environment)")
    version = importlib.metadata.version("torch")
    release = ".".join(version.split(".")[:2])
    if release not in supported:
        fail(f"PyTorch {version} of {sys.executable} is not a release that Cohort supports ({', '.join(supported)})",
             f'pip install "torch=={supported[-1]}.*", then {PIP}')
    return pathlib.Path(spec.origin).parent, release


def requirements():
    # What compiles nothing, such as making a source distribution, needs no PyTorch.
    if not {"dist_info", "bdist_wheel", "editable_wheel", "build", "build_ext", "install", "develop"} & set(sys.argv):
        return ["torch"]
    return [f"torch=={torch_folder_and_release()[1]}.*"]


def find_cmake():
    wanted = ".".join(map(str, OLDEST_CMAKE))
    hint = f'pip install "cmake>={wanted}", or your distribution\'s package'
    cmake = shutil.which("cmake")
    if cmake is None:
        fail("CMake is missing", hint)
    answer = subprocess.run([cmake, "--version"], capture_output=True, text=True)
    version = re.search(r"\b(\d+)\.(\d+)\S*", answer.stdout)
    if version is None:
        fail(f"{cmake} does not run: {(answer.stderr or answer.stdout).strip()}", hint)
    if tuple(map(int, version.groups())) < OLDEST_CMAKE:
        fail(f"{cmake} is {version.group()}, and CMake {wanted} or newer is needed", hint)
    return cmake


def check_compiler():
    compiler = os.environ.get("CXX", "").split()[:1] or ["c++", "g++", "clang++"]
    if not any(map(shutil.which, compiler)):
        fail(f"there is no C++ compiler ({', '.join(compiler)})",
             "install GCC 12 or newer (on Debian and Ubuntu: apt-get install build-essential), or set CXX to one")


def check_python_headers():
    folder = sysconfig.get_path("include")
    if not pathlib.Path(folder, "Python.h").is_file():
        fail(f"the headers of {sys.executable} are missing: no Python.h in {folder}",
             "on Debian and Ubuntu: apt-get install python3-dev")


def check_machine():
    platform = sysconfig.get_platform()
    if platform != "linux-x86_64":
        fail(f"this is {platform}, and Cohort runs on linux-x86_64 only", "use a machine with Linux on x86-64")


def num_jobs():
    """One compiler per core, but no more than 2 GiB of memory each allow: sources that use LibTorch are large."""
    free_kib = int(re.search(r"MemAvailable:\s*(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1))
    return max(1, min(len(os.sched_getaffinity(0)), free_kib >> 21))


def run_cmake(cmake, *arguments):
    command = [cmake, *map(str, arguments)]
    print("+", *command, flush=True)
    code = subprocess.run(command).returncode
    if code != 0:
        fail(f"CMake ended with {code}", "the reason stands above; what a build needs: tools/dev/setup.sh installs it")


def configure(cmake, folder, torch_folder):
    options = {"COHORT_TORCH_ROOT": torch_folder, "Python_EXECUTABLE": sys.executable, "CMAKE_BUILD_TYPE": "Release",
               "COHORT_BUILD_PYTHON": "ON", "COHORT_BUILD_EXTRAS": "ON", "COHORT_BUILD_TESTS": "OFF", "COHORT_BUILD_EXAMPLES": "ON",
               "COHORT_BUILD_BENCHMARKS": "OFF", "COHORT_WARNINGS_AS_ERRORS": "OFF"}
    generator = ["-G", "Ninja"] if shutil.which("ninja") and not (folder / "CMakeCache.txt").exists() else []
    run_cmake(cmake, "-S", SOURCE, "-B", folder, *generator, *(f"-D{name}={value}" for name, value in options.items()),
              *shlex.split(os.environ.get("CMAKE_ARGS", "")))


def build_package(prefix):
    """Compiles what is not up to date and puts the finished package into `prefix`/torchcohort."""
    check_machine()
    torch_folder, release = torch_folder_and_release()
    cmake = find_cmake()
    check_compiler()
    check_python_headers()
    given = os.environ.get("COHORT_BUILD_DIR")
    folder = pathlib.Path(given or SOURCE / "build/pip" / f"{sys.implementation.cache_tag}-torch{release}").absolute()
    if given and not (folder / "CMakeCache.txt").is_file():
        fail(f"COHORT_BUILD_DIR={given} is not a build folder: it has no CMakeCache.txt",
             f"cmake -S {SOURCE} -B {folder} -DCOHORT_BUILD_PYTHON=ON first, or unset COHORT_BUILD_DIR")
    if not given:
        configure(cmake, folder, torch_folder)
    parallel = [] if "CMAKE_BUILD_PARALLEL_LEVEL" in os.environ else ["--parallel", num_jobs()]
    run_cmake(cmake, "--build", folder, "--target", CMAKE_TARGET, *parallel)
    run_cmake(cmake, "--install", folder, "--component", "python", "--prefix", prefix)
    check_built_for_this_python(prefix / "torchcohort", given)


def check_built_for_this_python(package, given):
    """A build folder that was made by hand may belong to another Python or PyTorch."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    if not (package / f"_C{suffix}").is_file():
        made = ", ".join(sorted(file.name for file in package.glob("_C.*.so"))) or "no _C.*.so"
        fail(f"COHORT_BUILD_DIR={given} was configured for another Python: it made {made}, and {sys.executable} needs "
             f"_C{suffix}", f"configure it with -DPython_EXECUTABLE={sys.executable}, or unset COHORT_BUILD_DIR")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import torchcohort"
    tried = subprocess.run([sys.executable, "-c", code, str(package.parent)], capture_output=True, text=True)
    if tried.returncode != 0:
        fail(f"the finished package does not work with {sys.executable}:\n{tried.stderr.strip()}",
             "COHORT_BUILD_DIR was configured for another PyTorch; unset it" if given else "see the message above")


class BuildWithCMake(build_ext):
    """Lays the package into the wheel; for an editable install, what is compiled goes beside the sources."""

    def run(self):
        in_place = self.inplace or self.editable_mode
        target = SOURCE / "python/torchcohort" if in_place else pathlib.Path(self.build_lib, "torchcohort")
        with tempfile.TemporaryDirectory() as prefix:
            build_package(pathlib.Path(prefix))
            package = pathlib.Path(prefix, "torchcohort")
            for file in filter(pathlib.Path.is_file, sorted(package.rglob("*"))):
                copy = target / file.relative_to(package)
                if not (in_place and (copy.suffix in {".pyi", ".typed"} or copy.suffix == ".py" and copy.is_file())):
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.unlink(missing_ok=True)
                    shutil.copy2(file, copy)

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


class LauncherAsScript(build_scripts):
    """The console script `cohort` is the launcher itself, so that it starts in milliseconds: setuptools knows texts only."""

    def run(self):
        package = self.get_finalized_command("build_ext")
        folder = SOURCE / "python" if package.inplace or package.editable_mode else pathlib.Path(package.build_lib)
        self.mkpath(self.build_dir)
        self.copy_file(str(folder / "torchcohort/bin/cohort"), str(pathlib.Path(self.build_dir, "cohort")))

    def get_source_files(self):
        return []


def main():
    if int(setuptools.__version__.split(".")[0]) < OLDEST_SETUPTOOLS:
        fail(f"setuptools {setuptools.__version__} is too old",
             f'pip install "setuptools>={OLDEST_SETUPTOOLS}", then {PIP}')
    # setuptools' own folders: never among what CMake builds, and never with something left from last time.
    (SOURCE / "build/pip").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SOURCE / "build/pip", prefix="setuptools-") as scratch:
        setuptools.setup(
            version=first_match("cohort/version.h", r'COHORT_VERSION "([^"]+)"'),
            install_requires=requirements(),
            packages=setuptools.find_packages(SOURCE / "python"),
            package_dir={"": "python"},
            package_data={"torchcohort": ["py.typed", "*.pyi"]},
            ext_modules=[setuptools.Extension("torchcohort._C", sources=[])],
            scripts=["cohort"],
            cmdclass={"build_ext": BuildWithCMake, "build_scripts": LauncherAsScript},
            options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
        )


main()
