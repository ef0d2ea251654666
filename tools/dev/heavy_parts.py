#!/usr/bin/env python3
"""The checks that `.ci/run` has no time to run each time: it runs one or more in turn, `make release-check` runs all.

    tools/dev/heavy_parts.py order [FILE ...]   prints a line per part: name, seconds, 1 if the change needs it (else 0), command.
                                                First those that the change needs, then from a place in the table that depends on
                                                the hash of the tree. FILE: what changed (default: changed_files.sh)

The table's seconds are those of a machine on which `make build-gate` takes BUILD_SECONDS in a fresh clone, and include the build
of the part. COHORT_BUILD_SECONDS: the time of the build here, to scale the seconds for a slower machine.
"""
import collections
import os
import re
import subprocess
import sys

from sources import ROOT

BUILD_SECONDS = 410
Part = collections.namedtuple("Part", "name seconds command asked_by")
WITHOUT_TORCH = r"(cohort|tests)/(base|store|rendezvous|elastic|shm|snapshot|job|pipeline|files|report|extras/files|extras/report)/"
RELEASES = r"cohort/comm/release/|cmake/CohortTorch"
TESTS = "make build && tools/dev/run_tests.sh"
PARTS = [
    Part("third_1", 370, f"{TESTS} third 1", ""),
    Part("tsan", 420, "make tsan", r"(cohort|tests)/(store|rendezvous|elastic|shm|snapshot|job)/"),
    Part("quarter_1", 350, f"tools/dev/compat.sh --fetch-only 2.11.0 2.12.0 && {TESTS} quarter 1", ""),
    Part("compat_2.11", 300, "tools/dev/compat.sh --compile-only 2.11.0", RELEASES),
    Part("quarter_2", 320, f"{TESTS} quarter 2", ""),
    Part("bench", 350, "make build && tools/dev/smoke_bench.sh", r"benchmarks/"),
    Part("third_2", 370, f"{TESTS} third 2", ""),
    Part("asan", 430, "make asan", WITHOUT_TORCH),
    Part("quarter_3", 320, f"{TESTS} quarter 3", ""),
    Part("torch_suite", 60, "make torch-suite TORCH_SUITE=fast", r"tests/torch_suite/|cohort/comm/(group|backend|registry|shm)/"),
    Part("asan_torch", 1300, "make asan-torch", ""),
    Part("quarter_4", 320, f"{TESTS} quarter 4", ""),
    Part("compat_2.12", 300, "tools/dev/compat.sh --compile-only 2.12.0", RELEASES),
    Part("mutants_sample", 420, "make mutants SAMPLE=40 SEED=tree MUTANTS='--no-torch --budget 20 --least 50'", r"tools/dev/(generate_mutants|sample_mutants|switched_build|cpp/tokens|single_tests)|tests/mutants/switch"),
    Part("third_3", 370, f"{TESTS} third 3", ""),
    Part("nccl", 30, "tools/dev/nccl.sh", r"cohort/comm/nccl/|cmake/CohortNccl"),
    Part("aarch64", 120, "make aarch64", r"cohort/shm/kernels/"),
    Part("fuzz", 300, "env FUZZ_ENGINE=plain FUZZ_SECONDS=8 FUZZ_SEED=1 make fuzz", r"cohort/(extras/)?files/|cohort/.*(pars|protocol|header|reader)|tests/fuzz/"),
]


def order(tree, changed, parts=PARTS):
    """`tree`: a hash in hexadecimal digits."""
    first = int(tree[:8], 16) % len(parts)
    turn = parts[first:] + parts[:first]
    asked = [part for part in parts if part.asked_by and any(re.match(part.asked_by, path) for path in changed)]
    return [(part, int(part in asked)) for part in [*asked, *(part for part in turn if part not in asked)]]


def main(command, *arguments):
    changed = arguments or subprocess.run([ROOT / "tools/dev/changed_files.sh"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    tree = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD^{tree}"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    pace = max(1, int(os.environ.get("COHORT_BUILD_SECONDS", 0)) / BUILD_SECONDS)
    for part, is_asked in order(tree, changed):
        print(part.name, round(part.seconds * pace), is_asked, part.command)


if __name__ == "__main__":
    if sys.argv[1:2] != ["order"]:
        sys.exit(__doc__)
    main(*sys.argv[1:])
