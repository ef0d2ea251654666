#!/usr/bin/env python3
"""Draws generated mutants at random and counts how many of them the tests notice (`make mutants SAMPLE=200 SEED=7`).

generate_mutants.py knows the places. The drawn mutants go into one copy of the sources, build/mutants/sample, as switches. Each
test of CTest then runs once without a mutant and notes which of them it reaches; these tests, the nearest first, are tried with
each mutant until one fails. tests/mutants/survivors.txt lists mutants that are not drawn again, with reasons. Ends with a table
by layers; and with 1 if fewer are killed than --least says.

pytest's tests are not run, so tools/cohort-ckpt, tools/cohort-data, and the NCCL backend, which needs a GPU, are left out.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys

import changed_tests
import survivors
from generate_mutants import changes_of
from mutants import NEEDS_NO_TORCH, Problem, layer_of
from switched_build import build_what_compiles
from single_tests import TestRunner, tests_of
from sources import ROOT, files

LEFT_OUT = ("cohort/comm/nccl/", "tools/cohort-ckpt/", "tools/cohort-data/")
VERDICTS = ("killed", "survived", "not reached", "did not compile")
# Folders of tests without a layer's name that test a layer's code in addition to its own folder.
BESIDE = ("conformance", "devices")


# ---- the sample

def sources_of(root, layers):
    """Returns {layer: its sources}."""
    found = collections.defaultdict(list)
    for path in files(root, "cohort/*.cpp", "tools/cohort*/*.cpp"):
        name = path.relative_to(root).as_posix()
        if layer_of(name) in layers and not name.startswith(LEFT_OUT):
            found[layer_of(name)].append(name)
    return found


def shares(sizes, count):
    """Divides `count` among all in proportion to their size."""
    total = sum(sizes.values())
    exact = {name: count * size / total for name, size in sizes.items()}
    given = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda each: given[each] - exact[each])[:count - sum(given.values())]:
        given[name] += 1
    return given


def overlap(one, other):
    return one.file == other.file and one.begin < other.end and other.begin < one.end


def draw(root, layers, count, seed):
    """Draws `count` changes, in each layer in proportion to its code; at most one per line."""
    known = survivors.read(root)
    sources = sources_of(root, layers)
    sizes = {layer: sum((root / name).read_text().count("\n") for name in names) for layer, names in sorted(sources.items())}
    drawn = []
    for layer, share in shares(sizes, count).items():
        chance = random.Random(f"{seed} {layer}")
        lines = collections.defaultdict(list)
        for name in sources[layer]:
            for change in changes_of(root, name):
                lines[name, change.line].append(change)
        own = []
        for place in chance.sample(sorted(lines), len(lines)):
            kind = chance.choice(sorted({change.kind for change in lines[place]}))
            change = chance.choice([change for change in lines[place] if change.kind == kind])
            if len(own) < share and not any(survivor.is_change(change) for survivor in known) and not any(overlap(change, each) for each in own):
                own.append(change)
        drawn += sorted(own, key=lambda change: (change.file, change.begin))
    return drawn


# ---- the tests

def folders_for(layer, folders, is_own):
    """Returns the folders of tests that may notice a mutant of a layer: its own, and those of cheap layers above."""
    if layer == "tools":
        layer = "elastic"
    more = set() if is_own else changed_tests.above([layer]) & set(NEEDS_NO_TORCH)
    if layer not in NEEDS_NO_TORCH:
        more |= {name for name in BESIDE if layer in changed_tests.STANDS_ON[name]}
    return [name for name in folders if name == layer or name in more]


def programs_for(root, layers, is_own):
    """Returns {program of tests: its folder}; tests/extras has a program for each layer, named like the layer."""
    folders = {name: programs for name, (programs, _) in changed_tests.folders_of_tests(root).items()}
    folders |= {program.replace("_", "/", 1): [program] for program in folders.pop("extras", [])}
    return {program: name for layer in sorted(layers) for name in folders_for(layer, folders, is_own) for program in folders[name]}


def look_without(runner, tests, jobs):
    """Runs every test without a mutant; returns those that pass, and prints the others."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        passed = list(pool.map(lambda each: runner.look(each[1], f"test{each[0]}"), enumerate(tests)))
    good = []
    for i, (test, is_good) in enumerate(zip(tests, passed)):
        if is_good or runner.look(test, f"test{i}"):
            good.append(test)
        else:
            print(f"left out, as it fails without a mutant: {test.name} ({runner.work}/logs/test{i}.txt)", flush=True)
    return good


def nearness(test, change, programs):
    stem = pathlib.Path(change.file).stem
    is_own = test.source == f"{stem}_test"
    in_layer = programs[test.program] == ("elastic" if change.layer == "tools" else change.layer)
    return (0 if is_own else 1 if in_layer else 2), test.seconds


class Trial:
    """Tries mutants with the tests that reach them."""

    def __init__(self, runner, tests, programs, budget):
        self.runner, self.tests, self.programs, self.budget = runner, tests, programs, budget

    def of(self, number, change):
        """Returns (verdict, what noticed it or how many tests did not)."""
        near = sorted((test for test in self.tests if test.reached[number]), key=lambda test: nearness(test, change, self.programs))
        spent, tried = 0.0, 0
        for test in near:
            if tried and spent + test.seconds > self.budget:
                continue
            passed, _, _ = self.runner.run(test, number, f"mutant{number}")
            if not passed:
                return "killed", test.name
            spent, tried = spent + test.seconds, tried + 1
        return ("survived", f"{tried} of {len(near)} tests that come by") if near else ("not reached", "")


# ---- the command

def table(rows):
    """Returns lines of a table for {layer: Counter of verdicts}."""
    lines = [f"{'layer':12}{'mutants':>9}" + "".join(f"{verdict:>17}" for verdict in VERDICTS) + f"{'share killed':>14}"]
    total = sum(rows.values(), collections.Counter())
    for name, counts in [*rows.items(), ("all", total)]:
        lines.append(f"{name:12}{sum(counts.values()):9}" + "".join(f"{counts[verdict]:17}" for verdict in VERDICTS) + f"{share_killed(counts):13.0f}%")
    return lines


def share_killed(counts):
    """Returns the percentage of those that compile."""
    return 100 * counts["killed"] / max(1, sum(counts.values()) - counts["did not compile"])


def as_block(change):
    """Returns it in the form of the list of survivors."""
    return f"{change.file}\n  line   {change.line_text}\n  change {change.shown()}\n  reason "


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=200, metavar="N", help="mutants to draw (200)")
    parser.add_argument("--seed", default="1", help="seed of the draw (1); tree: depends only on the sources")
    parser.add_argument("--layers", default="", metavar="LAYER,...", help="mutants of these layers")
    parser.add_argument("--no-torch", action="store_true", help="only the layers without LibTorch: a much shorter build")
    parser.add_argument("--own", action="store_true", help="run only the tests of a mutant's own layer: a shorter build")
    parser.add_argument("--jobs", type=int, default=2, help="tests at the same time (2)")
    parser.add_argument("--limit", type=float, default=20, metavar="SECONDS", help="a test that takes longer than this, and five times as long as usual, counts as hanging (20)")
    parser.add_argument("--budget", type=float, default=60, metavar="SECONDS", help="limit for all tests of a mutant (60)")
    parser.add_argument("--least", type=float, default=0, metavar="PERCENT", help="end with 1 if fewer are killed")
    parser.add_argument("--list", action="store_true", help="print the drawn mutants and end")
    parser.add_argument("--check", action="store_true", help="check that the list of survivors fits the sources, and end")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    return parser.parse_args()


def chosen_layers(given):
    every = {*changed_tests.check_layers.BELOW, "tools"}
    layers = {layer for layer in given.layers.split(",") if layer} or every
    if unknown := layers - every:
        raise Problem(f"there is no layer {', '.join(sorted(unknown))}")
    return layers & set(NEEDS_NO_TORCH) if given.no_torch else layers


def try_all(trial, drawn, jobs):
    """Returns {number: (verdict, note)} of those that compile; prints each as soon as it is known."""
    results = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for (number, change), (verdict, note) in zip(drawn.items(), pool.map(lambda each: trial.of(*each), drawn.items())):
            results[number] = verdict, note
            print(f"{verdict:11} {number:4} {change.file}:{change.line}: {change.kind}: {change.shown()}  {note}".rstrip(), flush=True)
    return results


def report(numbered, results):
    rows = {layer: collections.Counter() for layer in sorted({change.layer for change in numbered.values()})}
    for number, change in numbered.items():
        rows[change.layer][results.get(number, ("did not compile",))[0]] += 1
    print("\n" + "\n".join(table(rows)))
    for verdict in VERDICTS[1:3]:
        for number, change in numbered.items():
            if results.get(number, ("",))[0] == verdict:
                print(f"\n# {verdict}: line {change.line}\n{as_block(change)}")
    return share_killed(sum(rows.values(), collections.Counter()))


def run(root, given):
    if given.seed == "tree":
        given.seed = subprocess.run(["git", "-C", root, "rev-parse", "HEAD^{tree}"], capture_output=True, text=True, check=True).stdout.strip()
    drawn = draw(root, chosen_layers(given), given.sample, given.seed)
    if not drawn:
        raise Problem("no mutant can be drawn")
    numbered = dict(enumerate(drawn, 1))
    if given.list:
        for number, change in numbered.items():
            print(f"{number:4} {change.file}:{change.line}: {change.kind}: {change.shown()}")
        return 0
    work = root / "build/mutants"
    has_torch = any(change.layer not in NEEDS_NO_TORCH for change in drawn)
    programs = programs_for(root, {change.layer for change in drawn}, given.own)
    left = dict(numbered)
    folder = build_what_compiles(root, work / "sample", left, [f"cohort_{program}_test" for program in programs], has_torch)
    tests = tests_of(root, folder, programs)
    print(f"{len(left)} of {len(drawn)} mutants compile; running {len(tests)} tests without any", flush=True)
    runner = TestRunner(folder, work, len(drawn), given.limit)
    trial = Trial(runner, look_without(runner, tests, given.jobs), programs, given.budget)
    share = report(numbered, try_all(trial, left, given.jobs))
    return 1 if share < given.least else 0


def main():
    given = options()
    root = given.root.resolve()
    os.environ.pop("COHORT_SECOND_TRY", None)
    try:
        if not given.check:
            return run(root, given)
        known = survivors.read(root)
        errors = survivors.stale(root, known)
        print("\n".join(errors) or f"survivors: {len(known)}, their places are there")
        return 1 if errors else 0
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
