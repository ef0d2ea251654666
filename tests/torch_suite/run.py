#!/usr/bin/env python3
"""Runs the backend tests that PyTorch ships in its wheel against one of our backends. See README.md.

    run.py [--backend cohort] [--selection full|fast] [--tests REGEX] [--json FILE]

Ends with 1 unless every test passed, was skipped by the suite itself, or fails as explained.txt says, and as many of them passed
as docs/parity/behaviors.md says.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch; there are more ranks than cores
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the tests are made for as many GPUs as ranks
os.environ["PYTORCH_PRINT_REPRO_ON_FAILURE"] = "0"

import torch  # noqa: E402

import counts  # noqa: E402
import explained  # noqa: E402
import runner  # noqa: E402
import suite  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
# docs/parity/behaviors.md has their numbers.
OURS = ("cohort", "shm")


@dataclasses.dataclass
class Judged:
    mode: str
    world_size: int
    test: str
    verdict: str  # passed, explained, failed, skipped
    text: str
    seconds: float


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cohort", help="cohort, shm, gloo, or gloo-renamed: Gloo under that name")
    parser.add_argument("--selection", default="full", choices=counts.SELECTIONS, help="default: full")
    parser.add_argument("--modes", help="instead of the selection's: cpu, cuda-as-cpu")
    parser.add_argument("--world-sizes", help="instead of the selection's, comma-separated")
    parser.add_argument("--tests", default="", help="only tests whose names this regular expression finds")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="tests side by side")
    parser.add_argument("--explained", type=pathlib.Path, default=HERE / "explained.txt")
    parser.add_argument("--json", type=pathlib.Path, help="write the verdicts there")
    return parser.parse_args(argv)


def combinations(options):
    chosen = counts.SELECTIONS[options.selection]
    modes = options.modes.split(",") if options.modes else list(dict.fromkeys(mode for mode, _ in chosen))
    if unknown := set(modes) - set(suite.MODES):
        raise SystemExit(f"no mode {', '.join(sorted(unknown))}; there are {', '.join(suite.MODES)}")
    if options.world_sizes:
        return [(mode, int(size)) for mode in modes for size in options.world_sizes.split(",")]
    return [(mode, size) for mode, size in chosen if mode in modes]


def run_combination(options, explanations, mode, world_size, answer):
    """In a process of its own, as the suite reads the world size while it is imported. Sends outcomes, then None."""
    if world_size == 3:  # once with the shared allocator
        os.environ.setdefault("COHORT_SHARED_ALLOCATOR", "1")
    cases, names = suite.load(options.backend, world_size, mode)
    if stale := [each for each in explanations if not hasattr(cases, each.test)]:
        raise SystemExit(f"{options.explained.name}:{stale[0].line}: PyTorch {torch.__version__} has no test {stale[0].test}")
    tests = []
    for name in filter(re.compile(options.tests).search, names):
        explanation = explained.find(explanations, name, options.backend, mode, world_size)
        if explanation and explanation.state == "left-out":
            answer.send(runner.Outcome(name, "failed", "left out"))
        else:
            tests.append(name)
    for outcome in runner.run_tests(cases, tests, options.jobs, suite.SECONDS_PER_TEST + 20):
        answer.send(outcome)
    answer.send(None)


def outcomes_of(options, explanations, mode, world_size):
    answer, theirs = runner.FORK.Pipe(duplex=False)
    process = runner.FORK.Process(target=run_combination, args=(options, explanations, mode, world_size, theirs))
    process.start()
    theirs.close()
    try:
        while (outcome := answer.recv()) is not None:
            yield outcome
    except EOFError:
        raise SystemExit(f"{mode} at {world_size} ranks ended before its tests, see above") from None
    finally:
        process.terminate()
        process.join()


def judged_of(options, explanations, mode, world_size):
    results = []
    for outcome in outcomes_of(options, explanations, mode, world_size):
        explanation = explained.find(explanations, outcome.test, options.backend, mode, world_size)
        verdict, text = explained.judge(outcome, explanation)
        results.append(Judged(mode, world_size, outcome.test, verdict, text, outcome.seconds))
        if verdict == "failed":
            print(f"FAILED {outcome.test}, {mode}, {world_size} ranks, {outcome.seconds:.1f} s", flush=True)
            print("  | " + text.replace("\n", "\n  | "), flush=True)
    return results


def count(results, verdict):
    return sum(each.verdict == verdict for each in results)


def wrong_count(options, stated, mode, world_size, results):
    """A sentence if other numbers of tests ran or passed than docs/parity/behaviors.md says."""
    if options.tests or not torch.__version__.startswith(counts.RELEASE):
        return ""
    passed = count(results, "passed") if options.backend in OURS else None
    return counts.complaint(stated, mode, world_size, passed, len(results) - count(results, "skipped"))


def print_explanations(results):
    reasons = {}
    for each in results:
        if each.verdict == "explained":
            reasons.setdefault(each.text, {}).setdefault(each.test, []).append(f"{each.mode} {each.world_size}")
    for reason, tests in reasons.items():
        print(f"\nexplained: {reason}")
        for test, where in tests.items():
            print(f"  {test} ({', '.join(where)})")


def main(argv=None):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = arguments(argv)
    explanations, stated = explained.read(options.explained), counts.read()
    suite.register(options.backend)
    results, complaints, rows = [], [], []
    with tempfile.TemporaryDirectory(prefix="torch-suite-") as tempfile.tempdir:  # the suite leaves files behind
        for mode, world_size in combinations(options):
            begin = time.monotonic()
            ran = judged_of(options, explanations, mode, world_size)
            results += ran
            numbers = [count(ran, verdict) for verdict in ("passed", "explained", "failed", "skipped")]
            rows.append((mode, world_size, *numbers, f"{time.monotonic() - begin:.0f}"))
            if complaint := wrong_count(options, stated, mode, world_size, ran):
                complaints.append(complaint)
    print_explanations(results)
    print(f"\nPyTorch {torch.__version__}'s backend tests on \"{options.backend}\"")
    for row in [("mode", "ranks", "passed", "explained", "failed", "skipped", "seconds"), *rows]:
        print("{:<12} {:>6} {:>8} {:>10} {:>7} {:>8} {:>8}".format(*row))
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(each) for each in results], indent=1) + "\n")
    for complaint in complaints:
        print(f"FAILED {complaint}")
    if not any(each.verdict == "passed" for each in results):
        complaints.append("nothing passed")
        print("FAILED no test passed")
    return 1 if complaints or count(results, "failed") else 0


if __name__ == "__main__":
    sys.exit(main())
