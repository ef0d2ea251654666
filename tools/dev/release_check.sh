#!/usr/bin/env bash
# Runs every check once (make release-check), which takes hours on 2 cores. Run it before a release, and its stages after changes
# of their parts.
#
#   tools/dev/release_check.sh [NAME ...]    default: all stages; the summary has their names
set -uo pipefail
cd "$(dirname "$0")/../.."
. tools/dev/stages.sh
wanted=" $* "
one() { if [[ $wanted == "  " || $wanted == *" $1 "* ]]; then stage "$@"; fi; }

one check 10m make check
one build 90m make build
one tidy 90m env COHORT_TIDY_SECONDS=3600 make tidy
one releases 30m tools/dev/compat.sh --fetch-only 2.11.0 2.12.0  # for tests/e2e/store/store_releases_test.py
one test 3h make test-all
one instruction_sets 3h tools/dev/instruction_sets.sh
while read -r name _ _ command; do
  # All tests have run; and what CI does only with headers, or on a small sample, is done in full.
  case $name in third_* | quarter_* | compat_* | mutants_sample) continue ;; esac
  one "$name" 3h bash -c "$command"
done < <(tools/dev/heavy_parts.py order)
one compat 4h make compat
one mutants 8h make mutants
one mutants_drawn 8h make mutants SAMPLE=200 SEED=tree
one demo 30m make demo
end_with_summary
