#!/usr/bin/env bash
# Builds the consumer project outside the main build, one way or the other, and runs its program on two ranks.
#
#   consume.sh find_package|add_subdirectory|other_torch SOURCE_DIR BUILD_DIR TORCH_ROOT
set -euo pipefail
way=$1 source_dir=$2 build_dir=$3 torch_root=$4
work=$build_dir/packaging/$way
mkdir -p "$work"

configure() {
  cmake -S "$source_dir/tests/packaging/consumer" -B "$work/build" -G Ninja "-DCMAKE_CXX_FLAGS=-O0" "$@"
}

cached() { sed -n "s/^$1:[A-Z]*=//p" "$build_dir/CMakeCache.txt"; }

run_two_ranks() {  # launcher
  timeout 60 "$1" run --standalone --nproc-per-node 2 "$work/build/consumer" | tee "$work/output.txt"
  # Averaged gradients keep the replicas equal, so both learned, each on its own data.
  for rank in 0 1; do
    awk -v rank=$rank '$2 == rank && $4 == 100 { found = 1; exit !($6 < 0.1) } END { exit !found }' "$work/output.txt"
  done
}

install_cohort() {
  rm -rf "$work/prefix"
  cmake --install "$build_dir" --prefix "$work/prefix" >/dev/null
  python3 "$source_dir/tools/dev/check_public_headers.py" "$source_dir" --installed "$work/prefix/include"
}

case $way in
  find_package)
    install_cohort
    # From here on only what was installed counts: no include path may lead back to the source tree.
    configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOHORT_TORCH_ROOT="$torch_root" -DCOHORT_COMPONENTS=extras
    cmake --build "$work/build"
    "$work/build/plot"
    if grep -q "$source_dir/cohort" "$work/build/build.ninja"; then
      echo "the consumer sees Cohort's source tree" >&2
      exit 1
    fi
    run_two_ranks "$work/prefix/bin/cohort"
    # An installation without the extras says so to who wants them, and does without for others.
    rm "$work"/prefix/lib*/cmake/Cohort/CohortExtrasTargets*.cmake
    if configure -DCOHORT_COMPONENTS=extras >"$work/output.txt" 2>&1; then
      echo "find_package found extras that are not installed" >&2
      exit 1
    fi
    cat "$work/output.txt"
    tr -s ' \n' ' ' <"$work/output.txt" | grep -q "This Cohort was installed without its extras"
    configure -DCOHORT_COMPONENTS= >/dev/null
    ;;
  add_subdirectory)
    # Cohort's own objects are taken from the main build where the commands are the same, and it is an error where their flags are
    # not: so this shows that a user's Cohort is the tested one, and that its targets link and run, in seconds instead of minutes.
    rm -rf "$work/build"
    same=()
    type_flags=CMAKE_CXX_FLAGS_$(cached CMAKE_BUILD_TYPE | tr '[:lower:]' '[:upper:]')
    for name in CMAKE_BUILD_TYPE CMAKE_CXX_COMPILER CMAKE_CXX_FLAGS "$type_flags"; do
      same+=("-D$name=$(cached "$name")")
    done
    # How much is optimized is the outer project's choice; by itself Cohort takes -O2 (cmake/CohortSettings.cmake).
    [[ $type_flags != *_RELEASE ]] || same[-1]=${same[-1]/-O3/-O2}
    cmake -S "$source_dir/tests/packaging/consumer" -B "$work/build" -G Ninja "${same[@]}" -DCOHORT_SOURCE_DIR="$source_dir" \
      -DCOHORT_TORCH_ROOT="$torch_root" \
      "-DCMAKE_CXX_COMPILER_LAUNCHER=python3;$source_dir/tests/packaging/reuse_objects.py;$work/build/cohort;$build_dir"
    cmake --build "$work/build" --target consumer cohort_launcher
    echo "objects: $(cut -d' ' -f1 "$work/build/cohort/reused.txt" | sort | uniq -c | tr -s ' \n' ' ')"
    # The consumer's own source, and what a build of selected targets has not made; all of it would mean that nothing was compared.
    if (($(grep -c ^compiled "$work/build/cohort/reused.txt") > 3)); then
      grep ^compiled "$work/build/cohort/reused.txt" >&2
      echo "the main build, $build_dir, lacks these objects, or they are older than their sources" >&2
      exit 1
    fi
    run_two_ranks "$(find "$work/build" -name cohort -type f -executable -print -quit)"
    ;;
  other_torch)
    # A LibTorch of another release: find_package must refuse it and say why.
    install_cohort
    other=$work/torch
    rm -rf "$other" "$work/build"
    mkdir -p "$other/include/ATen" "$other/include/torch/headeronly" "$other/lib"
    touch "$other/include/ATen/ATen.h" "$other/lib/libtorch_cpu.so"
    echo "_ZNSt7__cxx1112basic_string" >"$other/lib/libc10.so"
    printf '#define TORCH_VERSION_%s\n' "MAJOR 2" "MINOR 10" "PATCH 1" >"$other/include/torch/headeronly/version.h"
    if configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOHORT_TORCH_ROOT="$other" >"$work/output.txt" 2>&1; then
      echo "find_package took LibTorch 2.10.1" >&2
      exit 1
    fi
    cat "$work/output.txt"
    tr -s ' \n' ' ' <"$work/output.txt" | grep -q "but LibTorch 2.10.1 was found in $other"
    tr -s ' \n' ' ' <"$work/output.txt" | grep -q "is not a release that Cohort is tested with"
    # And one with the old C++ ABI.
    echo "_ZNSs4swap" >"$other/lib/libc10.so"
    configure -DCMAKE_PREFIX_PATH="$work/prefix" -DCOHORT_TORCH_ROOT="$other" >"$work/output.txt" 2>&1 && exit 1
    cat "$work/output.txt"
    tr -s ' \n' ' ' <"$work/output.txt" | grep -q "was built with the old C++ ABI"
    ;;
  *)
    echo "unknown way: $way" >&2
    exit 2
    ;;
esac
