#!/usr/bin/env bash
# Builds Cohort against a LibTorch with CUDA and runs on this machine's GPU: the tests of the simulated devices, NCCL, the example
# under the launcher, and training steps beside the same ones in Python. One GPU is enough; with one per rank, ranks communicate
# over NCCL, else over Gloo with copies on the host. Continues after a part that fails, and ends with a summary.
#
#   tools/dev/gpu.sh [PART ...]       PART is build, tests, example or figures (default: all)
#
#   COHORT_TORCH_ROOT    folder of the torch package or of LibTorch (default: PYTHON's)
#   PYTHON               a Python whose PyTorch is the rival (default: python3)
#   COHORT_GPU_BUILD     build folder (default: build/gpu); logs are in its folder logs
#   COHORT_GPU_CMAKE     further arguments of cmake
#   CXX                  the compiler; if the environment names one whose links fail ("hidden symbol ... is referenced by DSO"):
#                        CXX=/usr/bin/g++
#
# Needs the packages of tools/dev/setup.sh, including those of the extras, which the benchmarks use. If they are in folders of
# their own: COHORT_GPU_CMAKE="-DCMAKE_PREFIX_PATH=A;B".
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
torch=${COHORT_TORCH_ROOT:-$("$python" -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))')}
build=${COHORT_GPU_BUILD:-build/gpu}
logs=$build/logs
parts=("$@")
((${#parts[@]})) || parts=(build tests example figures)
targets=(cohort cohort_launcher cohort_devices_test cohort-bench-device-rank train_gpt)
summary=() failed=0
mkdir -p "$logs"
export COHORT_TRACE_DUMP=${COHORT_TRACE_DUMP:-never}

part() {  # name, seconds, command
  local begin=$SECONDS verdict=ok
  echo "gpu: $1" >&2
  timeout --kill-after 10 "$2" "${@:3}" >"$logs/$1.log" 2>&1 || { verdict="FAILED ($?)" failed=1; }
  summary+=("$1: $verdict, $((SECONDS - begin)) s")
}

build_all() {
  # shellcheck disable=SC2086  # arguments of cmake
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCOHORT_TORCH_ROOT="$torch" -DCOHORT_WARNINGS_AS_ERRORS=OFF \
    -DCOHORT_BUILD_PACKAGING_TESTS=OFF -DCOHORT_BUILD_PYTHON=OFF ${COHORT_GPU_CMAKE:-} &&
    cmake --build "$build" --target "${targets[@]}"
}

# One process per class, so that a crash does not hide the other classes.
run_tests() {
  local program=$build/bin/cohort_devices_test classes
  classes=$("$program" --sim=real --gtest_list_tests | grep -E '^[A-Za-z]+\.$') || return 1
  mkdir -p "$logs/tests"
  # shellcheck disable=SC2016  # for the inner shell
  xargs -n 1 -P 4 bash -c 'timeout --kill-after 10 150 "$0" --sim=real --gtest_brief=1 --gtest_filter="$2*" >"$1/$2log" 2>&1
    echo "$2 $?: $(sed -nE "s/^\[  SKIPPED \] ([0-9]+) tests?\..*/\1 skipped, /p" "$1/$2log")$(grep -E "PASSED|tests? ran" "$1/$2log" | tr "\n" " ")"' \
    "$program" "$logs/tests" <<<"$classes" | tee "$logs/tests/all"
  ! grep -vE '^[A-Za-z]+\. 0:' "$logs/tests/all"
}

run_example() {
  rm -rf "$logs/train_gpt"
  "$build/bin/cohort" run --standalone --nproc-per-node 1 "$build/bin/examples/train_gpt" --data cohort --steps 300 --eval-every 0 \
    --eval-windows 64 --save-every 200 --sample-bytes 40 --checkpoint "$logs/train_gpt"
}

run_figures() {
  set -e
  local file=$logs/weights.pt size dtype ranks
  for size in small gpt2; do
    for dtype in float32 bfloat16; do
      "$build/bin/cohort" run --standalone --nproc-per-node 1 "$build/bin/cohort-bench-device-rank" step "$size" "$dtype" "$file"
      "$python" -m torch.distributed.run --standalone --nproc-per-node 1 benchmarks/devices/device_rank.py step "$size" "$dtype" "$file"
    done
  done
  for ranks in "1 nccl" "2 gloo"; do
    "$build/bin/cohort" run --standalone --nproc-per-node "${ranks% *}" "$build/bin/cohort-bench-device-rank" all-reduce "${ranks#* }"
    "$python" -m torch.distributed.run --standalone --nproc-per-node "${ranks% *}" benchmarks/devices/device_rank.py all-reduce "${ranks#* }"
  done
}

export -f build_all run_tests run_example run_figures
export python torch build logs
for name in "${parts[@]}"; do
  case $name in
    build)
      begin=$SECONDS
      build_all >"$logs/build.log" 2>&1 || { tail -n 30 "$logs/build.log" >&2; exit 1; }
      summary+=("build: ok, $((SECONDS - begin)) s")
      ;;
    tests) part tests 400 bash -c run_tests ;;
    example) part example 120 bash -c run_example ;;
    figures) part figures 240 bash -c run_figures ;;
    *) echo "gpu: there is no part \"$name\"; there are: build tests example figures" >&2; exit 2 ;;
  esac
done
[[ -f $logs/figures.log ]] && grep -E '^(cohort|python) ' "$logs/figures.log"
printf 'gpu: %s\n' "${summary[@]}"
exit $failed
