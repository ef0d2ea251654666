#!/usr/bin/env bash
# Runs the tests that compare numbers with another implementation, once for each instruction set to which LibTorch can be limited:
# the order of sums differs, as on other processors. Goldens, which come from one processor, must be the same on each. Needs a
# finished release build; ends with 1 if a test fails.
#
#   tools/dev/instruction_sets.sh [SET ...]      default: those of default, avx2 and avx512 that the processor has
#
# Both variables are read when LibTorch is loaded, and reach all processes through the environment: ctest's programs are forked
# from servers with one environment each (tests/support/fork_server), and so are Python's ranks (tests/e2e/python_server.py).
set -uo pipefail
cd "$(dirname "$0")/../.."
logs=build/test-logs
mkdir -p $logs

# Selected by ctest's names, and by what tests of pytest compare with.
programs='^(parallel|dtensor|devices|models|mesh|checkpoint|train)[a-z_]*\.'
comparisons='torch\.equal|assert_close|allclose|approx\(|array_equal|_alike\(|assert_same|rounding\('
mapfile -t files < <(grep -rlE "$comparisons" tests/e2e/{checkpoint,comm,data,examples,models,parallel,pipeline,train} tests/python --include='*_test.py' | sort)
# These compare what their ranks print.
files+=(tests/e2e/dtensor/dtensor_test.py)

# MKL's names for them. On other vendors' processors it has one branch beside COMPATIBLE.
declare -A of_mkl=([default]=COMPATIBLE [avx2]=AVX2 [avx512]=AVX512)
sets=("$@")
((${#sets[@]})) || sets=(default avx2 avx512)

export COHORT_BINARY_DIR="$PWD/build" COHORT_TEST_RARE_GC=1 COHORT_TEST_LIVE=1
export COHORT_STRESS_SEED=${COHORT_STRESS_SEED:-$SRANDOM} COHORT_TEST_SEED=${COHORT_TEST_SEED:-$SRANDOM}
cores=$(nproc)
workers=$(((cores < 8 ? cores : 8) + 1))

has() {
  case $1 in
    default) true ;;
    avx2) grep -qw avx2 /proc/cpuinfo ;;
    avx512) grep -qw avx512f /proc/cpuinfo && grep -qw avx512vl /proc/cpuinfo && grep -qw avx512bw /proc/cpuinfo && grep -qw avx512dq /proc/cpuinfo ;;
  esac
}

# Prints what LibTorch and its MKL report that they use, such as "AVX2 COMPATIBLE".
in_use() {
  .venv/bin/python - <<'PY'
import ctypes
import os
import tempfile
import torch

with tempfile.TemporaryFile() as file:
    stdout = os.dup(1)
    os.dup2(file.fileno(), 1)
    with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
        torch.ones(9, 9) @ torch.ones(9, 9)
    ctypes.CDLL(None).fflush(None)
    os.dup2(stdout, 1)
    file.seek(0)
    words = file.read().decode().split()
print(torch.backends.cpu.get_cpu_capability(), *{word[4:] for word in words if word.startswith("CNR:")})
PY
}

summary=()
failed=0
for set in "${sets[@]}"; do
  mkl=${of_mkl[$set]:-}
  [[ $mkl ]] || { echo "instruction_sets: \"$set\" is not default, avx2 or avx512" >&2; exit 2; }
  if ! has "$set"; then
    summary+=("$set: left out, since this processor has no $set")
    continue
  fi
  export ATEN_CPU_CAPABILITY=$set MKL_CBWR=$mkl
  read -r of_torch of_mkl_now < <(in_use)
  if [[ ${of_torch,,} != "$set" ]]; then
    summary+=("$set: FAILED: LibTorch uses ${of_torch:-nothing that it says}")
    failed=1
    continue
  fi
  echo "=== ATEN_CPU_CAPABILITY=$set MKL_CBWR=$mkl, of which MKL makes ${of_mkl_now:-nothing that it says}"
  result=ok
  ctest --preset release -j "$workers" -R "$programs" 2>&1 | tee "$logs/$set-ctest.txt"
  ((PIPESTATUS[0])) && result=FAILED
  .venv/bin/python -m pytest -q -rfEs -p no:cacheprovider -n "$workers" --dist loadfile -m "not alone" "${files[@]}" 2>&1 | tee "$logs/$set-pytest.txt"
  ((PIPESTATUS[0])) && result=FAILED
  [[ $result == ok ]] || failed=1
  summary+=("$set: $result, MKL ${of_mkl_now:-unknown}; $(grep -E 'tests passed|No tests were found' "$logs/$set-ctest.txt" | tail -n 1); pytest: $(tail -n 1 "$logs/$set-pytest.txt")")
done

echo
printf '%s\n' "${summary[@]}"
((failed)) && echo "seeds:  COHORT_STRESS_SEED=$COHORT_STRESS_SEED COHORT_TEST_SEED=$COHORT_TEST_SEED (full output: $logs/)"
exit $failed
