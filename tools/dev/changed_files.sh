#!/usr/bin/env bash
# Names the files that a change touches: what differs from origin/main and what is not committed; where that is nothing, the last commit.
# COHORT_CHANGED_BASE: the commit to compare with instead.
set -euo pipefail
cd "$(dirname "$0")/../.."
base=${COHORT_CHANGED_BASE:-}
[[ -n $base ]] || base=$(git merge-base HEAD origin/main 2>/dev/null) || base=HEAD
if [[ -z $(git diff --name-only "$base"; git ls-files --others --exclude-standard) ]] && git rev-parse -q --verify HEAD~1 >/dev/null; then base=HEAD~1; fi
echo "changed since $(git log -1 --format='%h (%s)' "$base")" >&2
git diff --name-only ${1:+"$1"} "$base"
git ls-files --others --exclude-standard
