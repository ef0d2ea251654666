#!/usr/bin/env bash
# Installs missing requirements of the build and the tests: packages with apt, Python packages with pip into .venv. Does nothing
# if all are installed. Without root it prints the packages to ask for and ends with 1.
#
#   COHORT_TORCH_REQUIREMENT   PyTorch for pip, such as torch==2.13.0 for the CUDA build (several GB)
#   PYTHON                     the Python for .venv (default: python3)
set -euo pipefail
cd "$(dirname "$0")/../.."

torch_version=2.13.0
torch_requirement=${COHORT_TORCH_REQUIREMENT:-torch==$torch_version+cpu}
torch_cpu_index=https://download.pytorch.org/whl/cpu
python_packages=("numpy" "pytest>=7" "pytest-xdist>=3" "safetensors>=0.4" "expecttest" "pillow>=10" "tensorboard>=2.16")  # expecttest: for PyTorch's own tests
# Tests compare with the transforms and models of these packages, which are pure Python. torchvision's library is for another
# build of PyTorch, and timm needs more packages than its models do, so they are installed where no other package finds them.
# tests/e2e/data/torchvision_transforms.py and tests/e2e/models/model_libraries.py import them.
compared_requirements=(torchvision==0.28.0 timm==1.0.31)
compared_folder=.venv/share
required=(build-essential git make binutils ninja-build libgtest-dev libgmock-dev libbenchmark-dev libcli11-dev
          libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libboost-dev libssl-dev
          libjpeg-dev libpng-dev zlib1g-dev libzip-dev libdeflate-dev libcurl4-openssl-dev libarchive-dev)
optional=(ccache mold clang-format iproute2 libopenmpi-dev openmpi-bin
          libtcmalloc-minimal4 libjemalloc2  # rivals of cohort-bench allocator
          mpich slurm-wlm munge python3-yaml etcd-server openssl)  # the last line: for the tests of schedulers and etcd
compilers=(clang-19 clang-18 clang-17 clang-16)  # one of them halves the time of a build (cmake/CohortCompiler.cmake)
python=${PYTHON:-python3}
stamp=.venv/.cohort-setup

say() { echo "setup: $*" >&2; }
fail() { say "error: $*"; exit 1; }

missing_packages() {
  local installed
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "$@" 2>/dev/null || true)"
  for package in "$@"; do
    [[ $installed == *" installed:$package "* ]] || echo "$package"
  done
}

is_offered() { apt-cache show "$1" >/dev/null 2>&1; }

# Prints the newest compiler that the distribution has, if none of them is installed.
missing_compiler() {
  local package
  (($(missing_packages "${compilers[@]}" | wc -l) == ${#compilers[@]})) || return 0
  for package in "${compilers[@]}"; do
    if is_offered "$package"; then
      echo "$package"
      return
    fi
  done
}

cmake_is_recent() {
  local version
  version=$("${1:-cmake}" --version 2>/dev/null | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p') || return 1
  [[ -n $version && $(printf '%s\n' 3.25 "$version" | sort -V | head -n 1) == 3.25 ]]
}

# Needed for the package torchcohort. apt has them only for the distribution's Python.
python_lacks_headers() {
  local program=.venv/bin/python
  [[ -x $program ]] || program=$python
  "$program" -c 'import os, sysconfig, sys
sys.exit(os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' 2>/dev/null
}

install_with_apt() {
  (($#)) || return 0
  local as_root=()
  if ((EUID != 0)); then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      as_root=(sudo)
    else
      fail "these packages are missing and installing them needs root:
  apt-get install $*
  Ask an administrator for them, then run this again."
    fi
  fi
  say "installing with apt: $*"
  "${as_root[@]}" apt-get update -q >/dev/null || say "warning: apt-get update failed, going on with the package lists already here"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >&2 ||
    fail "apt-get could not install: $*
  Look at its messages above; without network, install these packages from your mirror and run this again."
}

install_system_packages() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "this script knows Debian and Ubuntu only. Install the counterparts of these packages: ${required[*]} cmake (>= 3.25) python3 (with venv)"
  local packages
  mapfile -t packages < <(missing_packages "${required[@]}")
  cmake_is_recent || packages+=(cmake)
  if ! .venv/bin/python -c 'import pip' 2>/dev/null && ! "$python" -c 'import ensurepip' 2>/dev/null; then
    packages+=(python3 python3-venv)
  fi
  if python_lacks_headers; then packages+=(python3-dev); fi
  # A fresh container has no package lists, and unknown packages would be left out.
  if ((EUID == 0)) && ! is_offered ccache; then apt-get update -q >/dev/null 2>&1 || true; fi
  # Packages that only make builds faster, checks stricter, or tests and benchmarks more complete (OpenMPI is a rival) are
  # installed if the distribution has them and we may install.
  if ((EUID == 0)) || ((${#packages[@]})); then
    for package in $(missing_packages "${optional[@]}"); do
      if is_offered "$package"; then packages+=("$package"); fi
    done
    mapfile -t -O "${#packages[@]}" packages < <(missing_compiler)
  fi
  install_with_apt "${packages[@]}"
}

python_packages_are_there() {
  .venv/bin/python - "$torch_version" 2>/dev/null <<'PY'
import sys
from importlib.metadata import version
sys.exit(0 if version("torch").split("+")[0] == sys.argv[1] and version("numpy") and version("pytest")
         and version("pytest-xdist") and version("safetensors") and version("expecttest") and version("pillow") and version("tensorboard") else 1)
PY
}

make_venv() {
  if .venv/bin/python -c 'import pip' 2>/dev/null; then return; fi
  command -v "$python" >/dev/null || fail "no $python found; install python3, or set PYTHON to a Python 3.10 to 3.14"
  "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' ||
    fail "$("$python" --version) cannot hold PyTorch $torch_version; set PYTHON to a Python 3.10 to 3.14"
  say "making .venv with $("$python" --version)"
  "$python" -m venv --clear .venv >&2 ||
    fail "$python cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"
}

pip_has_sources_of_its_own() {
  local settings
  # Not a pipe into grep -q, which ends early; pip's error about that would count as "no".
  settings=$(.venv/bin/pip config list 2>/dev/null) || return 1
  grep -Eq "(find-links|find_links|index-url|index_url)=" <<<"$settings"
}

# Each in a folder with its name and version.
compared_packages_are_there() {
  local requirement name
  for requirement in "${compared_requirements[@]}"; do
    name=${requirement%%=*}
    [[ -d $compared_folder/$name/$name-${requirement##*=}.dist-info ]] || return 1  # in this version
  done
}

install_compared_packages() {
  local requirement
  for requirement in "${compared_requirements[@]}"; do
    .venv/bin/pip install -q "$@" --no-deps --upgrade --target "$compared_folder/${requirement%%=*}" "$requirement" || return 1
  done
}

install_python_packages() {
  make_venv
  if python_packages_are_there && compared_packages_are_there; then return; fi
  local log=.venv/setup.log
  say "installing $torch_requirement and ${python_packages[*]} into .venv (about 200 MB, a minute or two)"
  # "+cpu" in the requirement prevents that a source returns the CUDA build, which is several GB with its libraries.
  if pip_has_sources_of_its_own &&
     .venv/bin/pip install -q "$torch_requirement" "${python_packages[@]}" >"$log" 2>&1 &&
     install_compared_packages >>"$log" 2>&1; then
    return
  fi
  if .venv/bin/pip install -q --retries 1 --extra-index-url "$torch_cpu_index" "$torch_requirement" "${python_packages[@]}" >>"$log" 2>&1 &&
     install_compared_packages --retries 1 >>"$log" 2>&1; then
    return
  fi
  tail -n 5 "$log" >&2
  fail "pip could not install $torch_requirement (all of its output: $log).
  Without network: put the wheel in a folder and run PIP_FIND_LINKS=/that/folder tools/dev/setup.sh
  For another build: COHORT_TORCH_REQUIREMENT=torch==$torch_version tools/dev/setup.sh"
}

# A Python that imports PyTorch spends a third of its time on garbage collections that find nothing, most of it at exit. With
# COHORT_TEST_RARE_GC=1 (set for the tests, of which there are hundreds), it collects rarely, and not at exit.
install_switch_for_tests() {
  local packages
  packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cp tests/support/python/cohort_tests.pth "$packages/"
}

# The fast path: this same script has run to its end here, and nothing was removed since.
checksum=$(cksum <"$0")
if [[ -f $stamp && $(<"$stamp") == "$checksum" && -x .venv/bin/pytest ]] &&
   compgen -G ".venv/lib/python3*/site-packages/torch/lib/libtorch_cpu.so" >/dev/null &&
   { cmake_is_recent .venv/bin/cmake || cmake_is_recent; } && [[ -z $(missing_packages "${required[@]}") ]]; then
  exit 0
fi

install_system_packages
install_python_packages
if ! cmake_is_recent; then
  say "this distribution's cmake is older than 3.25: installing one into .venv"
  .venv/bin/pip install -q "cmake>=3.25,<4" >&2 || fail "pip could not install cmake >= 3.25"
fi
python_packages_are_there || fail "the Python packages in .venv are incomplete; remove .venv and run this again"
install_switch_for_tests
echo "$checksum" >"$stamp"
say "everything is installed"
