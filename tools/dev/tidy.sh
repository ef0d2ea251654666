#!/usr/bin/env bash
# Runs clang-tidy with the project's .clang-tidy on the sources that changed (make tidy).
#
#   tools/dev/tidy.sh                differences from origin/main and uncommitted changes; without any, the last commit
#   tools/dev/tidy.sh FILE ...       these sources
#
#   COHORT_CHANGED_BASE   the commit to compare with instead (changed_files.sh)
#   COHORT_TIDY_SECONDS   begins no source after this time (default 240), and lists those left out
#
# The distribution's clang-tidy may be too old for libstdc++'s std::source_location, so pip installs one into build/clang-tidy. A
# source is read as the release build compiles it, without the precompiled header: 5 s each, 35 s with LibTorch's headers. A
# header is read with the source of its name.
set -euo pipefail
cd "$(dirname "$0")/../.."
release=20.1.0
program=build/clang-tidy/clang_tidy/data/bin/clang-tidy
limit=${COHORT_TIDY_SECONDS:-240}

say() { echo "tidy: $*" >&2; }

if [[ ! -x $program ]]; then
  say "fetching clang-tidy $release"
  .venv/bin/pip install -q --no-deps --target build/clang-tidy "clang-tidy==$release" >&2
fi

if (($#)); then files=("$@"); else mapfile -t files < <(tools/dev/changed_files.sh --diff-filter=d); fi
mapfile -t sources < <(for file in "${files[@]}"; do
  case $file in
    *.cpp) echo "$file" ;;
    *.h) if [[ -e ${file%.h}.cpp ]]; then echo "${file%.h}.cpp"; fi ;;
  esac
done | sort -u)
((${#sources[@]})) || { echo "tidy: no source changed, ok"; exit 0; }

[[ -e build/build.ninja ]] || cmake --preset release >/dev/null
# One entry per source, as a unity build has one per batch; the precompiled header is GCC's, which clang cannot read.
mapfile -t known < <(.venv/bin/python tools/dev/tidy_commands.py build build/tidy "${sources[@]}")
left_out=()
for source in "${sources[@]}"; do
  [[ " ${known[*]} " == *" $source "* ]] || left_out+=("$source: the release build has no such source")
done

check() {  # source: prints what was found; its name to stderr's list if there was no time
  if (($(date +%s) > tidy_end)); then
    echo "$1: the $tidy_limit s were over" >>build/tidy/left_out
  elif ! "$tidy_program" --quiet -p build/tidy "$1" 2>build/tidy/noise.$$ ; then
    grep -E 'error:' build/tidy/noise.$$ >&2 || true
    return 1
  fi
}
export -f check
rm -f build/tidy/left_out build/tidy/noise.*
status=0
# Fast sources first: those without LibTorch's headers.
printf '%s\n' "${known[@]}" | tidy_end=$(($(date +%s) + limit)) tidy_limit=$limit tidy_program=$program \
  xargs -r -P "$(nproc)" -I{} bash -c 'check {}' || status=1
[[ ! -e build/tidy/left_out ]] || mapfile -t -O "${#left_out[@]}" left_out <build/tidy/left_out
((${#left_out[@]} == 0)) || printf 'tidy: left out %s\n' "${left_out[@]}"
((status)) && { echo "tidy: errors in ${#sources[@]} sources"; exit 1; }
echo "tidy: $((${#sources[@]} - ${#left_out[@]})) of ${#sources[@]} changed sources, ok"
