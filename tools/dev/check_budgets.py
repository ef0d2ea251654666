#!/usr/bin/env python3
"""Hard caps: data members of a class, source files of a folder, length and parameters of a function, width of a line.

A file or folder may have more by a line `path kind limit reason` of tools/dev/budgets_allowed.txt. The limit of members and files is
what there is, so that it can only shrink.
"""
import argparse
import collections
import pathlib
import re
import sys

import class_members
from sources import ROOT, files, report, without_comments

CAPS = {"members": 20, "files": 25, "function": 70, "parameters": 6, "width": 130}
SHRINKING = ("members", "files")
SOURCES = ("*.h", "*.cpp", "*.py", "*.sh")
# Each of these doubles the compile time of its whole unity source.
ALL_OF_LIBTORCH = re.compile(r"\s*#\s*include\s*<torch/(torch|all|nn|optim)\.h>")
LAMBDA = re.compile(r"\[[^\[\]]*\]\s*\([^{}]*\)[^(){}]*$")
MARK = re.compile(r"(?m)^(?:TIER|BACKEND|PLACE)(?:_OF_FILE)?\(\w+\)[ \t]*$")  # tests/support/marks.h
NOT_A_FUNCTION = re.compile(r"\b(if|for|while|switch|catch|else|do|namespace|class|struct|enum|union|extern)\b")


def functions(text):
    """Returns (name, first line, number of lines, number of parameters) of each function or lambda with a body."""
    text = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"), without_comments(text))
    text = MARK.sub("", text)
    found, stack, start, parens = [], [], 0, 0
    for i, char in enumerate(text):
        if char in "()":
            parens += 1 if char == "(" else -1
        elif char == "{":
            stack.append((start, i, parens))
            start, parens = i + 1, 0
        elif char == "}" and stack:
            head_at, open_at, parens = stack.pop()
            head = text[head_at:open_at].strip()
            if head.count("(") != head.count(")"):  # inside a call: a lambda, or braces around values
                head = (LAMBDA.findall(head) or [""])[0]
            if is_function(head):
                first = text.count("\n", 0, open_at - len(text[head_at:open_at].lstrip()))
                found.append((*name_and_parameters(head), first + 1, text.count("\n", 0, i) - first + 1))
            start = i + 1
        elif char == ";" and parens == 0:
            start = i + 1
    return found


def is_function(head):
    if "(" not in head or not re.search(r"\)[^)=]*$|\)\s*:[^:].*$", head, re.S) or NOT_A_FUNCTION.match(head):
        return False
    before = head[: head.index("(")]
    return bool(re.search(r"[\w\]>~]\s*$|operator\s*\S*\s*$", before)) and not re.search(r"[^=!<>]=\s*$", before)


def name_and_parameters(head):
    at = head.index("(")
    if head[at:].startswith("()") and head[:at].rstrip().endswith("operator"):
        at = head.index("(", at + 2)
    name = (re.findall(r"[\w:~]+|\]", head[:at]) or ["?"])[-1].replace("]", "a lambda")
    depth, count, any_text = 0, 0, False
    for char in head[at:].replace("->", "  "):
        if char in "(<[{":
            depth += 1
        elif char in ")>]}":
            depth -= 1
            if depth == 0:
                break
        elif char == "," and depth == 1:
            count += 1
        any_text = any_text or (depth >= 1 and char.isalnum())
    return name, count + 1 if any_text else 0


class Budgets:
    def __init__(self, allowed):
        self.allowed, self.largest, self.errors = allowed, collections.Counter(), []

    def check(self, path, kind, value, error):
        """Adds `error` if the value exceeds its limit. `path`: the file or folder with the limit."""
        self.largest[path, kind] = max(self.largest[path, kind], value)
        if value > self.allowed.get((path, kind), (CAPS[kind], ""))[0]:
            self.errors.append(error)

    def check_source(self, path, text):
        for number, line in enumerate(text.splitlines(), 1):
            self.check(path, "width", len(line), f"{path}:{number}: {len(line)} columns, a line may have {CAPS['width']}")
            if ALL_OF_LIBTORCH.match(line):
                self.errors.append(f"{path}:{number}: takes seconds to compile; include the headers of what is used, such as <torch/nn/modules/linear.h>")
        for name, parameters, line, length in functions(text):
            self.check(path, "function", length, f"{path}:{line}: {name} has {length} lines, a function may have {CAPS['function']}")
            self.check(path, "parameters", parameters,
                       f"{path}:{line}: {name} takes {parameters} parameters, a function may take {CAPS['parameters']}")
        for each in class_members.classes(text):
            count = len(each.members)
            self.check(path, "members", count, f"{path}:{each.line}: {each.name} has {count} data members, a class may have "
                       f"{CAPS['members']}: give a mode, a phase or a rule a class of its own")

    def check_folders(self, paths):
        for folder, count in collections.Counter(str(pathlib.Path(path).parent) for path in paths).items():
            self.check(folder, "files", count, f"{folder}: {count} source files, a folder may have {CAPS['files']}: divide it into folders")

    def check_limits(self):
        """Checks that limits of members and files are not higher than needed."""
        for (path, kind), (limit, where) in self.allowed.items():
            value = self.largest[path, kind]
            if kind in SHRINKING and value < limit:
                self.errors.append(f"{where}: {path} has {value} {kind} now: "
                                   + ("remove the line" if value <= CAPS[kind] else f"write {value} in place of {limit}"))


def read_allowed(root):
    allowed, errors, name = {}, [], "tools/dev/budgets_allowed.txt"
    for number, line in enumerate(pathlib.Path(root, name).read_text().splitlines(), 1):
        fields = line.split(None, 3)
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) < 4 or fields[1] not in CAPS or not fields[2].isdigit():
            errors.append(f"{name}:{number}: needs `path kind limit reason`, kind one of {', '.join(CAPS)}")
        elif not pathlib.Path(root, fields[0]).exists():
            errors.append(f"{name}:{number}: {fields[0]} does not exist")
        else:
            allowed[fields[0], fields[1]] = (int(fields[2]), f"{name}:{number}")
    return allowed, errors


def main(root=ROOT):
    allowed, errors = read_allowed(root)
    budgets = Budgets(allowed)
    paths = [str(path.relative_to(root)) for path in files(root, *SOURCES)]
    budgets.check_folders(paths)
    for path in paths:
        if path.endswith((".h", ".cpp")):
            budgets.check_source(path, pathlib.Path(root, path).read_text())
    budgets.check_limits()
    report("budgets", errors + budgets.errors, f"{len(paths)} files")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__ + "\n" + class_members.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=ROOT, help="the project's folder")
    main(parser.parse_args().root)
