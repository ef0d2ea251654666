#!/usr/bin/env bash
# Formats all sources of the project; with --check it only lists those that are not formatted.
set -euo pipefail
cd "$(dirname "$0")/../.."
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.h' '*.cpp' | xargs -r ls -d 2>/dev/null)
if [[ ${1:-} != --check ]]; then
  clang-format -i "${files[@]}"
elif ! errors=$(clang-format --dry-run -Werror "${files[@]}" 2>&1); then
  sed -n 's/^\(.*\):[0-9]*:[0-9]*: error: code should be clang-formatted.*/\1: not formatted (run: make format)/p' <<<"$errors" |
    sort -u >&2
  exit 1
fi
echo "format: ${#files[@]} files, ok"
