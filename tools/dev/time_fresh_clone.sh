#!/usr/bin/env bash
# Times what a newcomer waits for: the steps of docs and HACKING.md in a fresh clone with a fresh .venv and no compiler cache, and
# prints them beside their limits on 2 cores. Packages that apt has installed stay; without them, setup takes longer.
#
#   tools/dev/time_fresh_clone.sh [ROW ...]     default: setup demo library test full edit
#
#   setup     tools/dev/setup.sh
#   demo      make demo, until the first training step is printed and until it ends
#   library   configure, build and install the library alone: preset `install`
#   full      configure and build everything: library, launcher, tests, benchmarks, examples
#   test      make test: setup, the build it needs, the gate
#   edit      one new line in a source of comm, until a test of comm has its result: preset `dev`
#
# Each row builds from nothing (setup is done first, untimed unless it is a row); edit begins with a finished dev build.
#
#   COHORT_CLONE_SOURCE   the repository to clone (default: this working tree's last commit)
#   COHORT_CLONE_FOLDER   the folder of the clone (default: a new folder below TMPDIR); removed at the end
#   COHORT_EDIT_SOURCE, COHORT_EDIT_FILTER   the source that changes, the tests that run
set -euo pipefail
cd "$(dirname "$0")/../.."
rows=("$@")
((${#rows[@]})) || rows=(setup demo library test full edit)
source=${COHORT_CLONE_SOURCE:-$PWD}
folder=${COHORT_CLONE_FOLDER:-$(mktemp -d)}
filter=${COHORT_EDIT_FILTER:-Collectives.*}
export CCACHE_DISABLE=1
declare -A takes=([setup]=- [demo_first]=360 [demo]=540 [library]=300 [test]=1200 [full]=- [edit]=30)
table=() late=0

say() { echo "time_fresh_clone: $*" >&2; }
trap 'rm -rf "$folder"' EXIT
now() { date +%s.%N; }

row() {  # name in takes, description, begin, end
  local target=${takes[$1]} seconds verdict=""
  seconds=$(awk -v begin="$3" -v end="$4" 'BEGIN { printf "%.1f", end - begin }')
  if [[ $target != - ]]; then
    verdict=$(awk -v s="$seconds" -v t="$target" 'BEGIN { print s <= t ? "ok" : "too long" }')
    [[ $verdict == ok ]] || late=1
    target="$target s"
  fi
  table+=("$(printf '%-52s %8s s  %8s  %s' "$2" "$seconds" "$target" "$verdict")")
  say "$2: $seconds s"
}

row_setup() {
  local begin
  begin=$(now)
  tools/dev/setup.sh
  row setup "setup" "$begin" "$(now)"
}

row_demo() {
  local begin first=""
  begin=$(now)
  while IFS= read -r line; do
    echo "$line"
    if [[ -z $first && $line =~ step\ [0-9]+/[0-9]+ ]]; then first=$(now); fi
    if [[ $line == demo\ ended\ with\ * && $line != *" 0" ]]; then say "error: make $line"; return 1; fi
  done < <(status=0; make demo 2>&1 || status=$?; echo "demo ended with $status")
  [[ -n $first ]] || { say "error: make demo printed no training step"; return 1; }
  row demo_first "make demo, first training step" "$begin" "$first"
  row demo "make demo, end" "$begin" "$(now)"
}

row_library() {
  local begin build
  begin=$(now)
  build=$(cmake --preset install -DCMAKE_INSTALL_PREFIX="$folder/prefix" | tee >(cat >&2) |
          sed -n 's/^-- Build files have been written to: //p')
  cmake --build "$build"
  cmake --install "$build"
  row library "library alone, configured to installed" "$begin" "$(now)"
  [[ -e $folder/prefix/bin/cohort ]] || { say "error: nothing was installed"; return 1; }
}

row_full() {
  local begin
  begin=$(now)
  cmake --preset release
  cmake --build --preset release
  row full "library, tests, benchmarks, examples" "$begin" "$(now)"
}

row_test() {
  local begin
  begin=$(now)
  make test
  row test "make test" "$begin" "$(now)"
}

row_edit() {
  local begin changed=${COHORT_EDIT_SOURCE:-$(git ls-files 'cohort/comm/*/collectives.cpp' cohort/comm/collectives.cpp | head -n 1)}
  cmake --preset dev
  cmake --build --preset dev --target cohort_comm_test
  echo "// A line more." >>"$changed"
  begin=$(now)
  cmake --build --preset dev --target cohort_comm_test
  build/dev/bin/cohort_comm_test "--gtest_filter=$filter" | tee "$folder/edit.txt"
  row edit "$(basename "$changed") changed, until its test has its result" "$begin" "$(now)"
  grep -q '\[  PASSED  \] [1-9]' "$folder/edit.txt" || { say "error: $filter ran no test"; return 1; }
}

begin=$(now)
git clone -q --no-hardlinks "$source" "$folder/cohort"
cd "$folder/cohort"
PATH=$PWD/.venv/bin:$PATH
export PATH CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
row setup "git clone" "$begin" "$(now)"
failed=0
[[ " ${rows[*]} " == *" setup "* ]] || tools/dev/setup.sh
for name in "${rows[@]}"; do
  declare -F "row_$name" >/dev/null || { say "error: there is no row $name"; exit 2; }
  rm -rf build
  # Not in an `if`, in which `set -e` has no effect.
  set +e
  ( set -e; table=() late=0; "row_$name"; printf '%s\n' "${table[@]}" >"$folder/rows"; exit $((late * 100)) )
  status=$?
  set -e
  case $status in
    0) ;;
    100) late=1 ;;
    *) failed=1; echo "$name: FAILED" >"$folder/rows" ;;
  esac
  mapfile -t -O "${#table[@]}" table <"$folder/rows"
done

echo
echo "$(git log -1 --format='%h %s'), $(nproc) cores, $(awk '/^model name/ { sub(/.*: /, ""); print; exit }' /proc/cpuinfo)"
printf '%-52s %10s  %8s\n' "" "took" "may take"
printf '%s\n' "${table[@]}"
exit $((failed || late))
