#!/usr/bin/env bash
# Cross-compiles the shared-memory engine for aarch64 and runs its tests under qemu-user: the NEON kernels, and every memory
# order on a processor model other than x86's. Everything goes into build/aarch64.
#
# Ends with 0 and a message if the distribution has no cross compiler or emulator, or if they are missing and only root could
# install them; tools/dev/count_skips.py counts that.
#
#   COHORT_AARCH64_FILTER   the tests that run (a --gtest_filter)
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=(g++-aarch64-linux-gnu qemu-user libgtest-dev libfmt-dev nlohmann-json3-dev libcli11-dev)
# Excludes tests whose ranks are processes: qemu-user cannot start a program of the emulated machine from within, does not fork
# reliably while there are threads, and its parent sees other exit codes and signals than the program has.
processes='*Process*:*Forked*:CallSites.NameTheProgramHoweverItWasStarted:*Killed*'
# And qemu-user ignores MADV_REMOVE.
processes+=':ArenaGroups.*:ArenaFailures.*:Arena.Limit*:Arena.IsItsOwners*:Arena.*Back*'
processes+=':*RankThat*:*StoppedRank*:Dump.OfEveryOperation:DumpSignal.*:DumpAtExit.*:DumpOnTimeout.*'
filter=${COHORT_AARCH64_FILTER:-*:-$processes}
build=$PWD/build/aarch64

say() { echo "aarch64: $*" >&2; }
skip() { say "skipped: $*"; mkdir -p build/test-logs; echo "aarch64: $*" >build/test-logs/steps.skipped; exit 0; }
rm -f build/test-logs/steps.skipped

missing=()
for package in "${packages[@]}"; do
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
done
if ((${#missing[@]})); then
  command -v apt-get >/dev/null || skip "no apt-get to install ${missing[*]} with"
  ((EUID == 0)) || skip "these packages are missing and installing them needs root: apt-get install ${missing[*]}"
  apt-get update -q >/dev/null 2>&1 || say "warning: apt-get update failed, going on with the package lists already here"
  for package in "${missing[@]}"; do
    apt-cache show "$package" >/dev/null 2>&1 || skip "apt has no $package"
  done
  say "installing with apt: ${missing[*]}"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >&2
fi

emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu)
cross=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
       -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
       "-DCMAKE_CROSSCOMPILING_EMULATOR=$(IFS=';'; echo "${emulator[*]}")")
package_of() {  # package, file: prints the folder of that file
  dirname "$(dpkg -L "$1" | grep "/$2\$" | head -n 1)"
}

# Libraries must be compiled for aarch64; the headers of fmt, nlohmann_json and CLI11 work on every machine.
googletest=$build/googletest
if [[ ! -e $googletest/complete ]]; then
  say "building googletest"
  cmake -S /usr/src/googletest -B "$googletest/build" "${cross[@]}" -DCMAKE_INSTALL_PREFIX="$googletest" >/dev/null
  cmake --build "$googletest/build" --target install >/dev/null
  touch "$googletest/complete"
fi
cmake -S . -B "$build" "${cross[@]}" -DCMAKE_PREFIX_PATH="$googletest" \
  -DCOHORT_BUILD_TORCH=OFF -DCOHORT_MOLD= \
  -Dfmt_DIR="$(package_of libfmt-dev fmt-config.cmake)" \
  -Dnlohmann_json_DIR="$(package_of nlohmann-json3-dev nlohmann_jsonConfig.cmake)" \
  -DCLI11_DIR="$(package_of libcli11-dev CLI11Config.cmake)" >/dev/null
cmake --build "$build" --target cohort_shm_test
say "running cohort_shm_test --gtest_filter=$filter under $(qemu-aarch64 --version | head -n 1)"
halves=()
for half in 0 1; do
  GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$half "${emulator[@]}" "$build/bin/cohort_shm_test" --gtest_brief=1 "--gtest_filter=$filter" &
  halves+=($!)
done
status=0
for half in "${halves[@]}"; do wait "$half" || status=$?; done
exit $status
