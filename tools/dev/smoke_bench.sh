#!/usr/bin/env bash
# Runs every question of cohort-bench once, in its shortest form, to show that each still runs and answers. The figures are
# meaningless, also because two questions run at a time; `make bench` measures.
#
#   tools/dev/smoke_bench.sh      after `make build`; rows in build/bench/smoke/
set -euo pipefail
cd "$(dirname "$0")/../.."
export COHORT_TEST_RARE_GC=1  # see setup.sh
export folder=build/bench/smoke
rm -rf "$folder"
mkdir -p "$folder"

# One case of questions with several similar ones: a step in bfloat16 takes seconds on a processor without it.
shortest() {  # question
  case $1 in
    allocator | fsdp-step) echo --case mlp-4x1024 ;;
    checkpoint) echo --case sharded-save --rounds 1 ;;
    collectives) echo --op all_reduce,send_recv --size 4KiB,1MiB ;;
    compile-time) echo --case hello-ddp/narrow-headers ;;
    dataloader) echo --case cifar --rounds 1 ;;
    ddp-step) echo --case linear-20x1 ;;
    models) echo --case making --rounds 1 ;;
    optimizer) echo --case adamw --rounds 1 ;;
    python) echo --case ddp/linear ;;
    train) echo --case gpt-25m --rounds 1 ;;
    launch | pipeline | recovery | rendezvous | store | tensor-parallel) echo --rounds 1 ;;
  esac
}

smoke() {  # question
  local status=0 rows=$folder/$1.json
  # shellcheck disable=SC2046  # several words
  build/bin/cohort-bench "$1" --quick $(shortest "$1") --json "$rows" >"$folder/$1.txt" 2>&1 || status=$?
  cat "$folder/$1.txt"
  ((status == 0)) || { echo "smoke_bench: $1 ended with $status" >&2; return 1; }
  [[ $(<"$rows") == *'"case"'* ]] || { echo "smoke_bench: $1 has no rows" >&2; return 1; }
}
export -f shortest smoke

mapfile -t questions < <(build/bin/cohort-bench --help | awk '/^Questions:/ { on = 1; next } on && $1 != "all" { print $1 }')
((${#questions[@]} >= 9)) || { echo "smoke_bench: cohort-bench --help names only ${#questions[@]} questions" >&2; exit 1; }
printf '%s\n' "${questions[@]}" | xargs -P 2 -n 1 bash -c 'smoke "$1"' smoke
