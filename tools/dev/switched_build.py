"""Builds the sources with generated mutants in them as switches, without those that do not compile."""
import pathlib
import re
import subprocess
import sys

from mutants import SWITCH, Problem, configure, make_tree


def switched(root, numbered):
    """Returns {file: its text with the mutants of `numbered` in it}."""
    texts = {}
    for number, change in sorted(numbered.items(), key=lambda each: -each[1].begin):
        text = texts.get(change.file) or (root / change.file).read_text()
        texts[change.file] = text[:change.begin] + change.choice(f"::cohort_mutant({number})") + text[change.end:]
    return {name: f'#include "{SWITCH}"\n#line 1\n{text}' for name, text in texts.items()}


def faults_of(output, tree, folder):
    """Returns (file, line) of each place that the compiler rejects."""
    found = []
    for path, line in re.findall(r"^(\S+?):(\d+):(?:\d+:)? +(?:fatal )?error:", output, re.M):
        place = pathlib.Path(folder, path).resolve()
        if place.is_relative_to(tree):
            found.append((place.relative_to(tree).as_posix(), int(line)))
    return found


def offenders(numbered, faults):
    """Returns the numbers of the mutants at these places; if a file has none there, all of the file."""
    found = set()
    for file, line in faults:
        own = {number: change for number, change in numbered.items() if change.file == file}
        found |= {number for number, change in own.items() if change.line <= line <= change.line + change.old.count("\n")} or set(own)
    return found


def build(folder, targets):
    """Returns (whether all could be built, what was printed)."""
    process = subprocess.Popen(["cmake", "--build", folder, "--target", *targets, "--", "-k", "0"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace")
    lines = []
    for line in process.stdout:
        lines.append(line)
        if re.match(r"\[\d+/\d+\] (?!Re)", line) or "error:" in line:
            print(line.rstrip()[:160], file=sys.stderr)
    return process.wait() == 0, "".join(lines)


def build_what_compiles(root, tree, numbered, targets, has_torch):
    """Removes those that do not compile from `numbered`. Returns the folder of the build."""
    folder = tree / "build"
    while True:
        make_tree(root, tree, switched(root, numbered))
        configure(tree, folder, has_torch)
        done, output = build(folder, targets)
        if done:
            return folder
        bad = offenders(numbered, faults_of(output, tree, folder))
        if not bad:
            raise Problem("the copy of the sources cannot be built, and not because of a mutant:\n" + "\n".join(output.splitlines()[-30:]))
        for number in bad:
            del numbered[number]
