#!/usr/bin/env bash
# Runs fuzz targets (tests/fuzz/fuzz.h): each gets its corpus, and inputs made from it, for some time. Ends with 1 if one finds a
# fault: its output names the input, kept in build/fuzz/, and the command that repeats it.
#
#   FUZZ_SECONDS   seconds for each target (default 60)
#   FUZZ_TARGETS   names of targets (default: all)
#   FUZZ_ENGINE    libfuzzer: clang's, which searches for new code paths and keeps its inputs in build/fuzz/finds/;
#                  plain: our own driver, in the build of make asan; default: libfuzzer if a clang has it
#   FUZZ_SEED      a number, to repeat a run
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${FUZZ_SECONDS:-60}
seed=${FUZZ_SEED:-$RANDOM}
engine=${FUZZ_ENGINE:-}
out=build/fuzz

say() { echo "fuzz: $*" >&2; }

# The layers use std::source_location, which needs clang 16.
find_clang() {
  local clang
  for clang in clang++ $(compgen -c clang++- | sort -t- -k2 -n -r -u); do
    if "$clang" -std=c++20 -fsanitize=fuzzer,address -x c++ -o "$out/probe" - 2>/dev/null <<'PROBE'
#include <cstddef>
#include <cstdint>
#include <source_location>
int line(std::source_location where = std::source_location::current()) { return static_cast<int>(where.line()); }
extern "C" int LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return line() * 0; }
PROBE
    then
      echo "$clang"
      return
    fi
  done
}

mkdir -p "$out"
clang=
if [[ $engine != plain ]]; then
  clang=$(find_clang)
  if [[ -z $clang ]]; then
    [[ -z $engine ]] || { say "error: no clang with libFuzzer; on Debian: apt-get install clang-19 libclang-rt-19-dev"; exit 1; }
    say "no clang with libFuzzer (on Debian: apt-get install clang-19 libclang-rt-19-dev): our own driver runs instead"
  fi
fi
if [[ -n $clang ]]; then
  preset=libfuzzer
  cmake --preset $preset -DCMAKE_CXX_COMPILER="$clang" >/dev/null
else
  preset=asan
  cmake --preset $preset >/dev/null
fi
cmake --build --preset $preset --target cohort_fuzz
targets=${FUZZ_TARGETS:-$(ls tests/fuzz/corpus)}
for target in $targets; do
  [[ -x build/$preset/bin/cohort_fuzz_$target ]] || { say "error: no target $target was built"; exit 1; }
done

run_one() {  # target: ends with 1 at a fault
  local program=build/$preset/bin/cohort_fuzz_$1 log=$out/$1.log status=0
  mkdir -p "$out/finds/$1"
  if [[ $preset == asan ]]; then
    "$program" --seconds="$seconds" --seed="$seed" --dictionary="tests/fuzz/dictionaries/$1.dict" --out="$out" \
      "tests/fuzz/corpus/$1" "$out/finds/$1" >"$log" 2>&1 || status=1
  else
    "$program" -max_total_time="$seconds" -seed="$seed" -dict="tests/fuzz/dictionaries/$1.dict" -artifact_prefix="$out/crash-$1-" \
      -timeout=5 -rss_limit_mb=2048 -malloc_limit_mb=128 -max_len=65536 -print_final_stats=1 \
      "$out/finds/$1" "tests/fuzz/corpus/$1" >"$log" 2>&1 || status=1
  fi
  if ((status)); then
    tail -n 60 "$log"
    echo "fuzz: $1: FAULT, seed $seed; all of its output: $log; libFuzzer names its input above, again: $program INPUT"
  elif [[ $preset == asan ]]; then
    tail -n 1 "$log"
  else
    echo "fuzz: $1: $(grep -c . < <(ls "$out/finds/$1")) finds kept, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs, seed $seed, ok"
  fi
  return $status
}
export -f run_one
export preset seconds seed out
# shellcheck disable=SC2086
printf '%s\n' $targets | xargs -P "$(nproc)" -I{} bash -c 'run_one {}'
