#!/usr/bin/env python3
"""Breaks the sources on purpose, one place at a time, and checks whether the tests notice (`make mutants`).

tests/mutants/mutants.txt lists the mutants, each with the tests that must notice it. All of them go into one copy of the sources,
build/mutants/tree, as switches that the variable COHORT_MUTANT turns on: one build serves all. A mutant is killed if one of its
tests fails, or does not end in time. Ends with 0 if all were killed, 1 if not, 2 if it could not find out.
"""
import argparse
import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import check_layers
from sources import ROOT, files

LIST, SWITCH = "tests/mutants/mutants.txt", "tests/mutants/switch.h"
NEEDS_NO_TORCH = (*check_layers.WITHOUT_TORCH, "tools")
LEFT_OUT = ("EXAMPLES", "BENCHMARKS", "PACKAGING_TESTS")  # COHORT_BUILD_...: no test of the list needs them


class Problem(Exception):
    """A problem in the list, the build or the tests that makes a verdict impossible."""


def layer_of(file):
    """Returns its layer; for files outside of layers, the first folder: python, tools."""
    return check_layers.layer_of(file) or file.split("/")[0]


@dataclasses.dataclass
class Mutant:
    name: str
    line: int
    file: str = ""
    old: str = ""
    new: str = ""
    ctest: list = dataclasses.field(default_factory=list)
    pytest: list = dataclasses.field(default_factory=list)

    @property
    def layer(self):
        return layer_of(self.file)

    @property
    def layers_of_tests(self):
        return {re.match(r"\w*", test)[0].replace("extras_", "extras/") for test in self.ctest}


# ---- the list

def read_list(text):
    """Parses blocks: an unindented name, and below it, indented, `key value`."""
    mutants = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not line[0].isspace():
            if not re.fullmatch(r"[a-z0-9.-]+", line):
                raise Problem(f"{LIST}:{number}: \"{line}\" is not a name of small letters, digits, points and hyphens")
            if any(mutant.name == line for mutant in mutants):
                raise Problem(f"{LIST}:{number}: there is a mutant \"{line}\" already")
            mutants.append(Mutant(line, number))
            continue
        key, _, value = line.strip().partition(" ")
        if not mutants or key not in ("file", "old", "new", "ctest", "pytest"):
            raise Problem(f"{LIST}:{number}: needs file, old, new, ctest or pytest below the name of a mutant")
        if key in ("ctest", "pytest"):
            getattr(mutants[-1], key).append(value.strip())
        else:
            setattr(mutants[-1], key, value.strip())
    for mutant in mutants:
        check(mutant)
    return mutants


def check(mutant):
    where = f"{LIST}:{mutant.line}: {mutant.name}"
    if not mutant.file or not mutant.old or not (mutant.ctest or mutant.pytest):
        raise Problem(f"{where} needs a file, an old text, and the tests that must notice")
    if mutant.old == mutant.new:
        raise Problem(f"{where} changes nothing")
    if is_statement(mutant.old) != (not mutant.new or is_statement(mutant.new)):
        raise Problem(f"{where}: a statement (it ends in a semicolon) is replaced by one or by nothing, an expression by another")
    for text in (mutant.old, mutant.new):
        if is_part(text):
            raise Problem(f"{where}: \"{text}\" is only a part: take a whole expression or statement, for it becomes a branch of a choice")
        if is_declaration(text):
            raise Problem(f"{where}: \"{text}\" is a declaration, whose name would end with the branch of a choice: take its value")


def is_statement(text):
    return text.endswith(";")


def is_declaration(text):
    """Whether a statement begins with a type and a name."""
    if not is_statement(text) or re.match(r"(return|throw|delete|goto|else|co_return|co_await|if|for|while)\b", text):
        return False
    return bool(re.match(r"(const|static|auto|using)\b|[\w:]+(<.*?>)?[\s&*]+\w+\s*(=(?!=)|;|\(|\{|\[)", text))


def is_part(text):
    """Whether the text is only a part of an expression or statement. The compiler would say so, too, but only in the middle of a long build."""
    text, before = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', "0", text), None
    while text != before:  # innermost brackets first
        text, before = re.sub(r"\([^()[\]{}]*\)|\[[^()[\]{}]*\]|\{[^()[\]{}]*\}", "0", text), text
    if re.search(r'["()[\]{}]', text):
        return True
    if is_statement(text):
        return False
    is_opened = re.match(r"(if|else|for|while|return|const|auto|static)\b", text)
    is_list = re.search("[,;]", re.sub("<[^<>]*>", "", text))
    colons = text.replace("::", "")
    return bool(is_opened or is_list or colons.count("?") != colons.count(":") or re.search(r"[*/%&|=<,!]$", text))


# ---- the switches

def place_of(mutant, text):
    """Returns where the old text is: exactly once, with line breaks and spaces treated alike."""
    pattern = r"\s+".join(re.escape(word) for word in mutant.old.split())
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        times = "not there" if not found else f"there {len(found)} times"
        raise Problem(f"{LIST}:{mutant.line}: {mutant.name}: its old text must be in {mutant.file} once, but is {times}")
    before = re.sub(r"(?m)//.*|^\s*#.*", "", text[:found[0].start()]).rstrip()
    if is_statement(mutant.old) and not re.search(r"(^|[;{}:)]|\b(else|do))$", before):
        raise Problem(f"{LIST}:{mutant.line}: {mutant.name}: its old text is only the end of a statement in {mutant.file}: take all of it")
    return found[0].span()


def with_switches(text, mutants):
    """Returns the source with each mutant's place turned into a choice, on the same line."""
    places = sorted((*place_of(mutant, text), mutant) for mutant in mutants)
    for (_, end, first), (begin, _, second) in itertools.pairwise(places):
        if begin < end:
            raise Problem(f"{LIST}:{second.line}: {second.name} changes what {first.name} changes")
    for begin, end, mutant in reversed(places):
        old, switch = text[begin:end], f'::cohort_mutant("{mutant.name}")'
        if is_statement(mutant.old):
            choice = f"{{ if ({switch}) {{ {mutant.new} }} else {{ {old} }} }}"
        else:
            choice = f"({switch} ? ({mutant.new}) : ({old}))"
        text = text[:begin] + choice + text[end:]
    return f'#include "{SWITCH}"\n#line 1\n{text}' if places else text


def grouped_by_file(mutants):
    by_file = {}
    for mutant in mutants:
        by_file.setdefault(mutant.file, []).append(mutant)
    return by_file


def check_places(root, mutants):
    """Checks that every mutant can be made, and that the files of its tests exist. Returns all problems, one per line."""
    problems = []
    for name, own in grouped_by_file(mutants).items():
        if not (root / name).is_file():
            problems.append(f"{LIST}:{own[0].line}: {own[0].name}: there is no file {name}")
            continue
        text, found = (root / name).read_text(), []
        for mutant in own:
            try:
                place_of(mutant, text)
                found.append(mutant)
            except Problem as problem:
                problems.append(str(problem))
        try:
            with_switches(text, found)
        except Problem as problem:
            problems.append(str(problem))
    for mutant in mutants:
        problems += [f"{LIST}:{mutant.line}: {mutant.name}: there is no test {node}" for node in mutant.pytest
                     if not (root / node.partition("::")[0]).exists()]
    if problems:
        raise Problem("\n".join(problems))


def switched_files(root, mutants):
    """Returns {file: its text with all mutants in it}."""
    switched = {}
    for name, own in grouped_by_file(mutants).items():
        if not (root / name).is_file():
            raise Problem(f"{LIST}:{own[0].line}: {own[0].name}: there is no file {name}")
        switched[name] = with_switches((root / name).read_text(), own)
    return switched


def make_tree(root, tree, changed):
    """Makes a copy of the project with other text in the files of `changed`. Unchanged files keep their time, so that little is
    built again."""
    wanted = {path.relative_to(root).as_posix(): path for path in files(root, "*") if not path.is_relative_to(root / "build")}
    for name, path in wanted.items():
        content = changed[name].encode() if name in changed else path.read_bytes()
        copy = tree / name
        if copy.is_file() and copy.read_bytes() == content:
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        shutil.copymode(path, copy)
    for path in [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]:
        name = path.relative_to(tree).as_posix()
        if name not in wanted and not name.startswith("build/") and "__pycache__" not in name:
            path.unlink()
    if (root / ".venv").exists() and not (tree / ".venv").is_symlink():
        (tree / ".venv").symlink_to((root / ".venv").resolve())


def configure(tree, folder, has_torch):
    command = ["cmake", "-S", tree, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-Wno-dev", "--no-warn-unused-cli",
               f"-DCOHORT_BUILD_TORCH={'ON' if has_torch else 'OFF'}", *[f"-DCOHORT_BUILD_{part}=OFF" for part in LEFT_OUT]]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        raise Problem("the copy of the sources cannot be configured")


def build(tree, folder, has_torch):
    configure(tree, folder, has_torch)
    if subprocess.run(["cmake", "--build", folder]).returncode != 0:
        raise Problem("the copy of the sources cannot be built: see what the compiler says; not every place can be a choice at run time")


# ---- the tests

def is_meant(name, patterns):
    return any(re.match(pattern, name) for pattern in patterns)


class Runner:
    def __init__(self, tree, folder, work, limit):
        self.tree, self.folder, self.work, self.limit = tree, folder, work, limit
        python = tree / ".venv/bin/python"
        self.python = str(python if python.exists() else sys.executable)
        listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, text=True)
        self.tests = [test["name"] for test in json.loads(listed.stdout)["tests"]]
        self.usual = {}  # seconds of each test of ctest without a mutant, and of all of pytest's
        for part in ("logs", "reached"):
            shutil.rmtree(work / part, ignore_errors=True)
            (work / part).mkdir(parents=True)

    def check_tests(self, mutants):
        for mutant in mutants:
            for pattern in mutant.ctest:
                if not any(re.match(pattern, name) for name in self.tests):
                    raise Problem(f"{LIST}:{mutant.line}: {mutant.name}: ctest knows no test that begins with {pattern}")

    def commands(self, ctest, pytest, jobs=1):
        commands = []
        if ctest:
            # Selected by number: an expression of all patterns would have more parentheses than ctest accepts.
            numbers = [str(i) for i, name in enumerate(self.tests, 1) if is_meant(name, ctest)]
            commands.append(["ctest", "--test-dir", str(self.folder), "-I", ",".join(["0", "0", "0", *numbers]), "--no-tests=error",
                             "--stop-on-failure", "--output-on-failure", "-j", str(jobs)])
        if pytest:
            commands.append([self.python, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", *pytest])
        return commands

    def run(self, name, commands, limit):
        """Returns (whether all tests passed, what failed or None, whether the mutant's place was reached)."""
        log, mark = self.work / "logs" / f"{name}.txt", self.work / "reached" / name
        env = {**os.environ, "COHORT_MUTANT": name, "COHORT_MUTANT_REACHED": str(mark), "COHORT_BINARY_DIR": str(self.folder)}
        env.pop("COHORT_SECOND_TRY", None)
        segments, failed = shared_memory(), None
        with open(log, "w") as output:
            for command in commands:
                process = subprocess.Popen(command, cwd=self.tree, env=env, stdout=output, stderr=subprocess.STDOUT,
                                           stdin=subprocess.DEVNULL, start_new_session=True)
                try:
                    if process.wait(limit) != 0:
                        failed = failed_test(log.read_text(errors="replace"))
                except subprocess.TimeoutExpired:
                    failed = f"no end within {limit:.0f} s"
                finally:
                    end_processes(str(mark))
                    process.wait()
                if failed:
                    break
        remove_segments(segments)
        return failed is None, failed, mark.exists()

    def try_without(self, mutants, jobs):
        ctest = sorted({pattern for mutant in mutants for pattern in mutant.ctest})
        pytest = sorted({node for mutant in mutants for node in mutant.pytest})
        passed, failed, _ = self.run("none", self.commands(ctest, pytest, jobs), 3600)
        if not passed:
            raise Problem(f"a test fails without any mutant, so its verdicts mean nothing: {failed} ({self.work}/logs/none.txt)")
        text = (self.work / "logs/none.txt").read_text(errors="replace")
        for name, seconds in re.findall(r"^ *\d+/\d+ Test +#\d+: (.*?) \.*\s+Passed +([\d.]+) sec", text, re.M):
            self.usual[name] = float(seconds)
        for seconds in re.findall(r"^\d+ passed.* in ([\d.]+)s", text, re.M):
            self.usual["pytest"] = float(seconds)

    def limit_of(self, mutant):
        """Returns the time limit: tests that are slow without a mutant, or on a busy machine, do not count as hanging."""
        usual = sum(seconds for name, seconds in self.usual.items() if is_meant(name, mutant.ctest))
        return max(self.limit, 5 * usual, self.usual.get("pytest", 0) if mutant.pytest else 0)

    def try_mutant(self, mutant):
        begin = time.monotonic()
        passed, failed, was_reached = self.run(mutant.name, self.commands(mutant.ctest, mutant.pytest), self.limit_of(mutant))
        seconds = time.monotonic() - begin
        if passed:
            return "survived", seconds, "" if was_reached else "none of its tests comes by its place"
        if not was_reached:
            return "unclear", seconds, f"{failed}, but not because of the mutant: no test came by its place"
        return "killed", seconds, failed


def failed_test(text):
    found = re.search(r"^\s+\d+ - (.*) \(.*\)", text.partition("The following tests FAILED:")[2], re.M)
    found = found or re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.M)
    return found.group(1).split("  #")[0] if found else "see the log"


def end_processes(mark):
    """Ends processes that a run has left behind, known by their environment, until none is left."""
    entry = f"COHORT_MUTANT_REACHED={mark}\0".encode()
    for _ in range(50):
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                if entry in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                pass
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def shared_memory():
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def remove_segments(before):
    """Removes segments that are new, ours, and no longer used by any process. Another mutant's tests may be using a folder."""
    new = {name for name in shared_memory() - before if re.match(r"torch_|cohort", name)}
    if not new:
        return
    used = set()
    for path in pathlib.Path("/proc").glob("[0-9]*/maps"):
        try:
            used.update(re.findall(r"/dev/shm/(\S+)", path.read_text()))
        except OSError:
            pass
    for name in new - used:
        segment = pathlib.Path("/dev/shm", name)
        try:
            if segment.is_file() and segment.stat().st_uid == os.getuid():
                segment.unlink()
        except FileNotFoundError:
            pass


# ---- the command

def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX", help="mutants whose name matches this")
    parser.add_argument("--layers", default="", metavar="LAYER,...", help="mutants of these layers: base, store, ..., python, tools")
    parser.add_argument("--no-torch", action="store_true", help="only the layers without LibTorch: a much shorter build")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at the same time (2)")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS", help="tests that take longer than this, and five times as long as usual, count as hanging (60)")
    parser.add_argument("--check", action="store_true", help="check that the places and tests of the list exist, and end")
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    return parser.parse_args()


def choose(mutants, given):
    layers = [layer for layer in given.layers.split(",") if layer]
    unknown = set(layers) - {mutant.layer for mutant in mutants}
    if unknown:
        raise Problem(f"no mutant is in layer {', '.join(sorted(unknown))}")
    with_torch = {mutant.layer for mutant in mutants}.difference(NEEDS_NO_TORCH)
    chosen = [mutant for mutant in mutants if re.search(given.only, mutant.name) and (not layers or mutant.layer in layers)
              and (not given.no_torch or not with_torch & {mutant.layer, *mutant.layers_of_tests})]
    if not chosen:
        raise Problem("no mutant is chosen")
    return chosen


def run_all(runner, chosen, jobs):
    counts = {"killed": 0, "survived": 0, "unclear": 0}
    width = max(len(mutant.name) for mutant in chosen)
    left = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for mutant, (verdict, seconds, note) in zip(chosen, pool.map(runner.try_mutant, chosen)):
            counts[verdict] += 1
            if verdict != "killed":
                left.append(f"{mutant.name} ({mutant.file})")
            print(f"{verdict:8} {mutant.name:{width}} {seconds:6.1f} s  {note}".rstrip(), flush=True)
    print(f"\n{len(chosen)} mutants: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    for name in left:
        print(f"not killed: {name}")
    return 1 if left else 0


def main():
    given = options()
    root = given.root.resolve()
    work = root / "build/mutants"
    try:
        mutants = read_list((root / LIST).read_text())
        if given.check:
            check_places(root, mutants)
            print(f"mutants: {len(mutants)}, their places are there")
            return 0
        chosen = choose(mutants, given)
        if given.list:
            for mutant in chosen:
                print(f"{mutant.name}  {mutant.file}\n    {mutant.old}\n    {mutant.new or '(nothing)'}")
            return 0
        tree = work / "tree"
        folder = tree / ("build/no-torch" if given.no_torch else "build")
        make_tree(root, tree, switched_files(root, mutants))
        build(tree, folder, not given.no_torch)
        runner = Runner(tree, folder, work, given.limit)
        runner.check_tests(chosen)
        print(f"trying the tests of {len(chosen)} mutants without any", flush=True)
        runner.try_without(chosen, given.jobs)
        return run_all(runner, chosen, given.jobs)
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
