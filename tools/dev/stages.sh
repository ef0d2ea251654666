# Runs stages one after the other and prints the time of each; sourced by `.ci/run` and `make release-check`.
# shellcheck shell=bash
summary=()
failures=()
logs=build/ci
mkdir -p "$logs"
trap 'kill $(jobs -p) 2>/dev/null' EXIT

stage() {  # name, time limit, command ...
  local name=$1 limit=$2 begin=$SECONDS status=0 verdict
  shift 2
  echo "=== $name: $*"
  : >"$logs/$name.txt"
  timeout --kill-after=10 "$limit" "$@" >>"$logs/$name.txt" 2>&1 &
  tail -n +1 -s 0.2 -f --pid=$! "$logs/$name.txt"
  wait $! || status=$?
  case $status in
    0) verdict=ok ;;
    124 | 137)
      verdict="FAILED: not done after $limit"
      if [[ ${cut_off_is_no_fault:-} ]] &&
        ! grep -qE '\*\*\*(Failed|Timeout|Exception|Not Run)|FAULT|^FAILED[: ]|^failed: |^\[  FAILED' "$logs/$name.txt"; then
        verdict="CUT OFF: there is no time for the rest of it; nothing had failed" status=0
      fi
      ;;
    *) verdict="FAILED: exit code $status" ;;
  esac
  ((status == 0)) || failures+=("$name")
  summary+=("$(printf '%-12s %5d s  %s' "$name" $((SECONDS - begin)) "$verdict")")
}

# Ends the script: prints why stages failed, again if only the end of a log is available, and the time of each.
end_with_summary() {
  local name
  for name in "${failures[@]}"; do
    echo "=== $name failed; the end of its output:"
    tail -n 25 "$logs/$name.txt" | cut -c -400
  done
  for folder in build/test-logs build/test-logs/*/; do
    [[ ! -s $folder/tests-failed.txt ]] || grep -h -A4 ': Failure$\|\*\*\*Timeout\|\*\*\*Exception' "$folder/ctest.txt" | head -40
    grep -hE '^(E  |FAILED |ERROR )' "$folder"/{pytest,alone}.txt 2>/dev/null | cut -c -1000 | head -60
    cat "$folder"/*-failed.txt 2>/dev/null | sed 's/^/failed at first: /'
  done
  printf '%s\n' "" "=== summary" "${summary[@]}" "$(printf '%-12s %5d s' total $SECONDS)"
  ((${#failures[@]} == 0))
  exit
}
