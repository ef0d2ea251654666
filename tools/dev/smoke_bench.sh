#!/usr/bin/env bash
# Every question of cohort-bench once, in its shortest form: shows that each still runs and answers. The figures are worth nothing;
# `make bench` measures.
#
#   tools/dev/smoke_bench.sh      after `make build`; rows in build/bench/smoke/
set -euo pipefail
cd "$(dirname "$0")/../.."
export COHORT_TEST_RARE_GC=1  # see setup.sh
folder=build/bench/smoke
rm -rf "$folder"
mkdir -p "$folder"

# One case where a question has several that take the same way: a step in bfloat16 is seconds on a processor without it.
declare -A only=([allocator]="--case mlp-4x1024" [checkpoint]="--case sharded-save --rounds 1" [collectives]="--op all_reduce,send_recv --size 4KiB,1MiB"
                 [compile-time]="--case hello-ddp/narrow-headers" [dataloader]="--case cifar --rounds 1" [ddp-step]="--case linear-20x1"
                 [fsdp-step]="--case mlp-4x1024" [launch]="--rounds 1" [models]="--case making --rounds 1" [optimizer]="--case adamw --rounds 1"
                 [pipeline]="--rounds 1" [python]="--case ddp/linear" [recovery]="--rounds 1" [rendezvous]="--rounds 1" [store]="--rounds 1"
                 [tensor-parallel]="--rounds 1" [train]="--case gpt-25m --rounds 1")
mapfile -t questions < <(build/bin/cohort-bench --help | awk '/^Questions:/ { on = 1; next } on && $1 != "all" { print $1 }')
((${#questions[@]} >= 9)) || { echo "smoke_bench: cohort-bench --help names only ${#questions[@]} questions" >&2; exit 1; }
for question in "${questions[@]}"; do
  # shellcheck disable=SC2086  # several words
  build/bin/cohort-bench "$question" --quick ${only[$question]:-} --json "$folder/$question.json"
  [[ $(<"$folder/$question.json") == *'"case"'* ]] || { echo "smoke_bench: $question has no rows" >&2; exit 1; }
done
