#!/usr/bin/env bash
# Runs all tests of a finished release build, ctest and then pytest, and ends with both summaries and what was skipped.
#
# pytest runs a file per core and one more (pytest-xdist): a file's tests stay together and in order, since its servers and clusters are
# theirs. Tests marked `alone` come after the others, one at a time.
#
# COHORT_SECOND_TRY=1 (as in CI) gives tests of tools/dev/known_flakes.txt a second try, with the seeds of the first; any other
# failure stands. One that passes then is named at the end.
set -uo pipefail
cd "$(dirname "$0")/../.."
logs=build/test-logs
mkdir -p $logs
rm -f $logs/*-failed.txt $logs/second-tries.txt $logs/{ctest,pytest,alone}.{txt,xml}

# What tests choose at random, they choose from these.
export COHORT_STRESS_SEED=${COHORT_STRESS_SEED:-$SRANDOM} COHORT_TEST_SEED=${COHORT_TEST_SEED:-$SRANDOM}

# For Python's ranks (see setup.sh).
export COHORT_TEST_RARE_GC=1

# Many tests wait more than they compute.
cores=$(nproc)
workers=$(((cores < 8 ? cores : 8) + 1))

failed=()
ctest --preset release -j "$workers" --output-junit "$PWD/$logs/ctest.xml" 2>&1 | tee $logs/ctest.txt
((PIPESTATUS[0])) && failed+=(ctest)

run_pytest() {  # name of the logs, further options
  local name=$1 status
  shift
  COHORT_BINARY_DIR="$PWD/build" .venv/bin/python -m pytest -q -rfEs -p no:cacheprovider tests --junitxml="$logs/$name.xml" "$@" 2>&1 |
    tee "$logs/$name.txt"
  status=${PIPESTATUS[0]}
  # 5: no test was selected. 2 to 4: pytest itself could not go on.
  ((status == 1)) && failed+=("$name")
  ((status == 0 || status == 1 || status == 5)) || broken=1
}
broken=0
run_pytest pytest -m "not alone" -n "$workers" --dist loadfile
run_pytest alone -m alone -p no:xdist

if ((${#failed[@]})) && ((!broken)) && [[ ${COHORT_SECOND_TRY:-} == 1 ]]; then
  .venv/bin/python tools/dev/second_try.py "$workers" "${failed[@]}" && failed=()
fi

echo
echo "ctest:  $(grep -E 'tests passed|No tests were found' $logs/ctest.txt | tail -n 1)"
echo "pytest: $(tail -n 1 $logs/pytest.txt)"
echo "        $(tail -n 1 $logs/alone.txt) (alone)"
tools/dev/count_skips.py $logs || echo "        (an error in .ci/run only)"
[[ ! -e $logs/second-tries.txt ]] || cat $logs/second-tries.txt
if ((${#failed[@]} || broken)); then
  echo "seeds:  COHORT_STRESS_SEED=$COHORT_STRESS_SEED COHORT_TEST_SEED=$COHORT_TEST_SEED"
  echo "FAILED (full output: $logs/)"
  exit 1
fi
