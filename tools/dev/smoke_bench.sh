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

declare -A only=([checkpoint]="--rounds 1" [compile-time]="--case hello-ddp/narrow-headers"
                 [collectives]="--op all_reduce,send_recv --size 4KiB,1MiB" [dataloader]="--case cifar --rounds 1" [ddp-step]="--case linear-20x1" [python]="--case ddp/linear"
                 [launch]="--rounds 1" [recovery]="--rounds 1" [store]="--rounds 1"
                 [pipeline]="--rounds 1" [rendezvous]="--rounds 1" [tensor-parallel]="--rounds 1" [train]="--rounds 1")
mapfile -t questions < <(build/bin/cohort-bench --help | awk '/^Questions:/ { on = 1; next } on && $1 != "all" { print $1 }')
((${#questions[@]} >= 9)) || { echo "smoke_bench: cohort-bench --help names only ${#questions[@]} questions" >&2; exit 1; }
for question in "${questions[@]}"; do
  # shellcheck disable=SC2086  # several words
  build/bin/cohort-bench "$question" --quick ${only[$question]:-} --json "$folder/$question.json"
  [[ $(<"$folder/$question.json") == *'"case"'* ]] || { echo "smoke_bench: $question has no rows" >&2; exit 1; }
done
