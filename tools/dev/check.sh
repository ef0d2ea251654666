#!/usr/bin/env bash
# Runs every check that needs no build, then fails if one of them failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
status=0
for check in layers public_headers namespaces options budgets registered environment devices overrides errors english parity goldens docs; do
  python3 "tools/dev/check_$check.py" || status=1
done
python3 tools/dev/mutants.py --check || status=1
python3 tools/dev/sample_mutants.py --check || status=1
tools/dev/format.sh --check || status=1
exit $status
