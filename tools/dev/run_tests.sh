#!/usr/bin/env bash
# Runs tests of a finished release build, ctest and then pytest, and ends with both summaries and what was skipped.
#
#   tools/dev/run_tests.sh            the gate: tests without a mark (make test)
#   tools/dev/run_tests.sh all        every test (make test-all)
#   tools/dev/run_tests.sh third N    N from 1 to 3: default tests on another backend, in place, and on simulated devices
#   tools/dev/run_tests.sh quarter N  N from 1 to 4: tests that are not in the gate (tests/support/marks.h, pytest's mark tier_all), and
#                                     those with goldens
#   tools/dev/run_tests.sh changed    tests of the gate that a change since origin/main can affect (changed_tests.py); lists the others
#
# pytest runs a file per core and one more (pytest-xdist): a file's tests run together and in order, as they share servers and
# clusters. Tests marked `alone` run after the others, one at a time.
#
# Python computes the content of goldens (tests/e2e/golden.py) anew in "all" and "quarter", and for a golden that has changed. If
# a golden's script has changed, it does so in every run.
#
# COHORT_SECOND_TRY=1 (as in CI) gives tests of tools/dev/known_flakes.txt a second try, with the seeds of the first; any other
# failure counts. A test that then passes is named at the end.
set -uo pipefail
cd "$(dirname "$0")/../.."
which=${1:-gate} part=${2:-}
logs=build/test-logs
ctest=(--preset release) pytest=(tests)
case $which,$part in
  gate,) ctest+=(-L '^gate$') pytest+=(-m "not alone and not tier_all") alone="alone and not tier_all" ;;
  all,) pytest+=(-m "not alone") alone=alone is_live=1 ;;
  third,[123]) logs+=/third_$part ctest+=(-L "^third_$part\$") pytest=() ;;
  quarter,[1234])
    logs+=/quarter_$part
    ctest+=(-L '^all$' -LE '^third_' -I "$part,,4")
    pytest+=(--part "$part/4" -m "not alone and (tier_all or golden)") alone="alone and (tier_all or golden)" is_live=1
    ;;
  changed,)
    chosen=$(tools/dev/changed_tests.py) || exit 1
    eval "$chosen"  # chosen_ctest, chosen_pytest, left_out
    ctest+=(-L '^gate$' -R "$chosen_ctest") pytest=("${chosen_pytest[@]}")
    ((${#pytest[@]} == 0)) || pytest+=(-m "not alone and not tier_all")
    alone="alone and not tier_all"
    ;;
  *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
mkdir -p "$logs"
rm -f "$logs"/*-failed.txt "$logs"/second-tries.txt "$logs"/{ctest,pytest,alone}.{txt,xml}

[[ $(tools/dev/changed_files.sh 2>/dev/null) != */goldens/* ]] || is_live=1
[[ -z ${is_live:-} ]] || export COHORT_TEST_LIVE=1

# The seeds of everything that tests choose at random.
export COHORT_STRESS_SEED=${COHORT_STRESS_SEED:-$SRANDOM} COHORT_TEST_SEED=${COHORT_TEST_SEED:-$SRANDOM}

# For Python's ranks (see setup.sh).
export COHORT_TEST_RARE_GC=1
# Threads of OpenMP sleep while they wait: there are more of them than cores, as tests run side by side.
export OMP_WAIT_POLICY=passive
# LibTorch's store resolves the name of each address that connects, and blocks meanwhile. A lost answer costs 1 s instead of 5,
# and is requested again, as LibTorch warns without an answer.
export RES_OPTIONS="timeout:1 attempts:5"

# Many tests wait more than they compute.
cores=$(nproc)
workers=$(((cores < 8 ? cores : 8) + 1))

failed=()
ctest "${ctest[@]}" --no-tests=ignore -j "$workers" --output-junit "$PWD/$logs/ctest.xml" 2>&1 | tee "$logs/ctest.txt"
((PIPESTATUS[0])) && failed+=(ctest)

run_pytest() {  # name of the logs, further options
  local name=$1 status
  shift
  COHORT_BINARY_DIR="$PWD/build" .venv/bin/python -m pytest -q -rfEs -p no:cacheprovider "${pytest[@]}" --junitxml="$logs/$name.xml" "$@" 2>&1 |
    tee "$logs/$name.txt"
  status=${PIPESTATUS[0]}
  # 5: no test was selected. 2 to 4: pytest itself could not continue.
  ((status == 1)) && failed+=("$name")
  ((status == 0 || status == 1 || status == 5)) || broken=1
}
broken=0
if ((${#pytest[@]})); then
  run_pytest pytest -n "$workers" --dist loadfile --no-loadscope-reorder
  run_pytest alone -m "$alone" -p no:xdist
fi

if ((${#failed[@]})) && ((!broken)) && [[ ${COHORT_SECOND_TRY:-} == 1 ]]; then
  .venv/bin/python tools/dev/second_try.py "$logs" "$workers" "${failed[@]}" && failed=()
fi

echo
echo "ctest:  $(grep -E 'tests passed|No tests were found' "$logs/ctest.txt" | tail -n 1)"
if ((${#pytest[@]})); then
  echo "pytest: $(tail -n 1 "$logs/pytest.txt")"
  echo "        $(tail -n 1 "$logs/alone.txt") (alone)"
fi
[[ -z ${left_out:-} ]] || echo "left out, because the change cannot affect it: $left_out"
tools/dev/count_skips.py "$logs" || echo "        (an error in .ci/run only)"
[[ ! -e $logs/second-tries.txt ]] || cat "$logs/second-tries.txt"
if ((${#failed[@]} || broken)); then
  echo "seeds:  COHORT_STRESS_SEED=$COHORT_STRESS_SEED COHORT_TEST_SEED=$COHORT_TEST_SEED"
  echo "FAILED (full output: $logs/)"
  exit 1
fi
