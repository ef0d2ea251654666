#!/usr/bin/env bash
# Lists the files of a change: differences from origin/main and uncommitted changes; without any, the last commit.
# COHORT_CHANGED_BASE: the commit to compare with instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
base=${COHORT_CHANGED_BASE:-}
[[ -n $base ]] || base=$(git merge-base HEAD origin/main 2>/dev/null) || base=HEAD
if [[ -z $(git diff --name-only "$base"; git ls-files --others --exclude-standard) ]] && git rev-parse -q --verify HEAD~1 >/dev/null; then base=HEAD~1; fi
echo "changed since $(git log -1 --format='%h (%s)' "$base")" >&2
git diff --name-only ${1:+"$1"} "$base"
git ls-files --others --exclude-standard
