#!/usr/bin/env python3
"""Hard caps on sizes. A file may ask for more in tools/dev/budgets_allowed.txt: `path kind limit reason`."""
import pathlib
import re
import sys

from sources import ROOT, files, report, without_comments

CAPS = {"header": 250, "source": 500, "test": 500, "readme": 200, "function": 70, "parameters": 6, "width": 130}
# One of these makes its whole unity source twice as dear to compile.
ALL_OF_LIBTORCH = re.compile(r"\s*#\s*include\s*<torch/(torch|all|nn|optim)\.h>")
LAMBDA = re.compile(r"\[[^\[\]]*\]\s*\([^{}]*\)[^(){}]*$")
MARK = re.compile(r"(?m)^(?:TIER|BACKEND|PLACE)(?:_OF_FILE)?\(\w+\)[ \t]*$")  # tests/support/marks.h
NOT_A_FUNCTION = re.compile(r"\b(if|for|while|switch|catch|else|do|namespace|class|struct|enum|union|extern)\b")


def kind_of(path):
    if path == "README.md":
        return "readme"
    if path.startswith("tests/"):
        return "test"
    return "header" if path.endswith(".h") else "source"


def functions(text):
    """(name, first line, number of lines, number of parameters) of each function or lambda with a body."""
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


def errors_of(path, text, allowed):
    def over(kind, value):
        return value > allowed.get((path, kind), CAPS[kind])

    lines, kind, errors = text.splitlines(), kind_of(path), []
    if over(kind, len(lines)):
        errors.append(f"{path}:1: {len(lines)} lines, a {kind} file may have {CAPS[kind]}")
    if kind == "readme":
        return errors
    for number, line in enumerate(lines, 1):
        if over("width", len(line)):
            errors.append(f"{path}:{number}: {len(line)} columns, a line may have {CAPS['width']}")
        if ALL_OF_LIBTORCH.match(line):
            errors.append(f"{path}:{number}: takes seconds to compile; include the headers of what is used, such as <torch/nn/modules/linear.h>")
    for name, parameters, line, length in functions(text):
        if over("function", length):
            errors.append(f"{path}:{line}: {name} has {length} lines, a function may have {CAPS['function']}")
        if over("parameters", parameters):
            errors.append(f"{path}:{line}: {name} takes {parameters} parameters, a function may take {CAPS['parameters']}")
    return errors


def read_allowed(root):
    allowed, errors, name = {}, [], "tools/dev/budgets_allowed.txt"
    for number, line in enumerate(pathlib.Path(root, name).read_text().splitlines(), 1):
        fields = line.split(None, 3)
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) < 4 or fields[1] not in CAPS or not fields[2].isdigit():
            errors.append(f"{name}:{number}: needs `path kind limit reason`, kind one of {', '.join(CAPS)}")
        elif not pathlib.Path(root, fields[0]).is_file():
            errors.append(f"{name}:{number}: {fields[0]} does not exist")
        else:
            allowed[(fields[0], fields[1])] = int(fields[2])
    return allowed, errors


def main(root=ROOT):
    allowed, errors = read_allowed(root)
    paths = files(root, "*.h", "*.cpp", "README.md")
    for path in paths:
        name = str(path.relative_to(root))
        if not name.endswith("/README.md"):
            errors += errors_of(name, path.read_text(), allowed)
    report("budgets", errors, f"{len(paths)} files")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
