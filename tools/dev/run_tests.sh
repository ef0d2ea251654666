#!/usr/bin/env bash
# Runs all tests of a finished release build, ctest and then pytest, and ends with both summaries.
set -uo pipefail
cd "$(dirname "$0")/../.."
mkdir -p build/test-logs

ctest --preset release -j "$(nproc)" 2>&1 | tee build/test-logs/ctest.txt
ctest_status=${PIPESTATUS[0]}
COHORT_BINARY_DIR=$PWD/build .venv/bin/python -m pytest tests -q -rs -p no:cacheprovider 2>&1 | tee build/test-logs/pytest.txt
pytest_status=${PIPESTATUS[0]}

echo
echo "ctest:  $(grep -E 'tests passed|No tests were found' build/test-logs/ctest.txt | tail -n 1)"
echo "pytest: $(tail -n 1 build/test-logs/pytest.txt)"
if ((ctest_status || pytest_status)); then
  echo "FAILED (full output: build/test-logs/)"
  exit 1
fi
