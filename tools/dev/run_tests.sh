#!/usr/bin/env bash
# Runs all tests of a finished release build, ctest and then pytest, and ends with both summaries and what was skipped.
#
# pytest runs a file per core and one more (pytest-xdist): a file's tests stay together and in order, since its servers and clusters are
# theirs. Tests marked `alone` come after the others, one at a time.
#
# COHORT_SECOND_TRY=1 (as in CI) runs each failed test once more, alone. One that passes then is named at the end: it is a
# fault to be found, but not one of the change at hand. PyTorch's own Gloo, which many of these tests run beside, has such:
# its sparse all-reduce now and then damages the heap, about once in 20,000 calls on three ranks (2.13.0, no code of ours).
set -uo pipefail
cd "$(dirname "$0")/../.."
logs=build/test-logs
mkdir -p $logs
rm -f $logs/*-failed.txt $logs/{ctest,pytest,alone}.{txt,xml}

# Many tests wait more than they compute.
cores=$(nproc)
workers=$(((cores < 8 ? cores : 8) + 1))

ctest --preset release -j "$workers" --output-junit "$PWD/$logs/ctest.xml" 2>&1 | tee $logs/ctest.txt
ctest_status=${PIPESTATUS[0]}

pytest=(env COHORT_BINARY_DIR="$PWD/build" .venv/bin/python -m pytest -q -rfEs -p no:cacheprovider)
run_pytest() {  # name of the logs, further options: the exit code of pytest, with "no test was selected" as success
  local name=$1 status
  shift
  "${pytest[@]}" tests --junitxml="$logs/$name.xml" "$@" 2>&1 | tee "$logs/$name.txt"
  status=${PIPESTATUS[0]}
  ((status == 5)) && status=0
  return "$status"
}
pytest_status=0
run_pytest pytest -m "not alone" -n "$workers" --dist loadfile || pytest_status=$?
run_pytest alone -m alone -p no:xdist || pytest_status=$((pytest_status > $? ? pytest_status : $?))

second_tries=()
try_again() {  # runner, file of names, command ...: the names are appended to the command
  local runner=$1 names=$2 failed
  shift 2
  mapfile -t failed <"$names"
  ((${#failed[@]} && ${#failed[@]} <= 5)) || return 1
  echo "=== a second try of $runner: ${failed[*]}"
  local name
  for name in "${failed[@]}"; do
    "$@" "$name" || return 1
  done
  second_tries+=("${failed[@]}")
}
ctest_one() { ctest --preset release --no-tests=error -R "^$(sed 's/[][().*+?^$|/\\]/\\&/g' <<<"$1")$" --output-on-failure; }
pytest_one() { "${pytest[@]}" "$1" -p no:xdist; }
if [[ ${COHORT_SECOND_TRY:-} == 1 ]]; then
  if ((ctest_status)); then
    sed -nE '/^The following tests FAILED:/,$ s/^[[:space:]]+[0-9]+ - (.*) \([A-Za-z ]+\).*/\1/p' $logs/ctest.txt >$logs/ctest-failed.txt
    try_again ctest $logs/ctest-failed.txt ctest_one && ctest_status=0
  fi
  if ((pytest_status == 1)); then
    # What all tests of a file need is one error, though each of them reports it: such a file counts once.
    cat $logs/pytest.txt $logs/alone.txt |
      sed -nE '/^(FAILED|ERROR) /{s/ - .*//; s/^FAILED //; s/^ERROR ([^:]*).*/\1/; p}' | sort -u >$logs/pytest-failed.txt
    try_again pytest $logs/pytest-failed.txt pytest_one && pytest_status=0
  fi
fi

echo
echo "ctest:  $(grep -E 'tests passed|No tests were found' $logs/ctest.txt | tail -n 1)"
echo "pytest: $(tail -n 1 $logs/pytest.txt)"
echo "        $(tail -n 1 $logs/alone.txt) (alone)"
tools/dev/count_skips.py $logs || echo "        (an error in .ci/run only)"
((${#second_tries[@]} == 0)) || printf 'passed on the second try only: %s\n' "${second_tries[@]}"
if ((ctest_status || pytest_status)); then
  echo "FAILED (full output: $logs/)"
  exit 1
fi
