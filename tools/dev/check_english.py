#!/usr/bin/env python3
"""Phrases that a reader has to read twice are in no comment, text or page: a `///` sentence that begins with "What", and the verb "is"
before "none" or "no". Words and names are spelled as PyTorch's are, the American way. English needs some of these ("there is no", "is no longer", "is no more than"), so they are allowed."""
import ast
import io
import pathlib
import re
import sys
import tokenize

from cpp.tokens import TOKEN
from sources import ROOT, files, report

COMPARISONS = "longer|more|less|fewer|later|earlier|larger|smaller|greater|slower|faster|better|worse"
ABSENT = re.compile(rf"(?<!\b[Tt]here )\b[Ii]s (?:none\b|no (?!(?:{COMPARISONS})\b))")  # "is None" is Python's
BEGINNING = re.compile(r"(?<![\"'`])\bWhat ")
ABSENT_RULE = {"none": 'write "If absent, ..." or "there is none"', "no": 'write "is not a ..." or "there is no ..."'}


# As in PyTorch. Parts of words, since names have them, too.
BRITISH = {"behaviour": "behavior", "cancelled": "canceled", "catalogue": "catalog", "colour": "color", "favour": "favor",
           "grey": "gray", "honour": "honor", "initialis": "initializ", "labelled": "labeled", "learnt": "learned",
           "neighbour": "neighbor", "normalis": "normaliz", "optimis": "optimiz", "parallelise": "parallelize",
           "penalis": "penaliz", "quantisa": "quantiza", "recognis": "recogniz", "serialis": "serializ", "signalling": "signaling",
           "synchronis": "synchroniz", "time-out": "timeout", "utilis": "utiliz"}
BRITISH_PART = re.compile("|".join(f"[{word[0]}{word[0].upper()}]{word[1:]}" for word in BRITISH))
MAY_BE_BRITISH = {"check_english.py", "CHANGELOG.md", "fsdp_blocks_python_rank.py"}  # of the last the golden has a digest


class Prose:
    """Pieces of text that are read as one, such as the lines of a comment; knows the line that each character is from."""
    def __init__(self):
        self.text, self.lines = "", []

    def add(self, text, line, gap=" "):
        gap = gap if self.text else ""
        self.text += gap + text
        self.lines += [line] * len(gap + text)


def one_line_each(prose, text, line):
    for i, part in enumerate(text.split("\n")):
        prose.add(part.strip().strip("*").strip(), line + i)
    return prose


def cpp_prose(text):
    """Of comments and of string literals, each with whether it is a `///` comment. Neighbors are one: lines, and literals side by side."""
    found, kind, line, line_breaks = [], "", 1, 0
    for match in TOKEN.finditer(text):
        token = match.group()
        if token.isspace():
            line_breaks += token.count("\n")
        else:
            now = ("///" if token.startswith("///") else "//" if token.startswith("//") else "/*" if token.startswith("/*")
                   else "text" if match.lastgroup in ("text", "mark") and token[0] != "'" else "")
            is_new = now != kind or now.startswith("//") and line_breaks > 1 or now == "/*"
            if now and is_new:
                found.append((Prose(), now == "///"))
            if now.startswith("//"):
                found[-1][0].add(token.lstrip("/").strip(), line)
            elif now == "text":
                found[-1][0].add(token[token.index('"') + 1:-1], line, "")
            elif now:
                one_line_each(found[-1][0], token[2:-2], line)
            kind, line_breaks = now, 0
        line += token.count("\n")
    return found


def python_prose(text):
    """Of comments and of string literals."""
    found, last = [], -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1:
                found.append((Prose(), False))
            found[-1][0].add(token.string.lstrip("#").strip(), token.start[0])
            last = token.start[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append((one_line_each(Prose(), node.value, node.lineno), False))
    return found


def paragraphs(text):
    """Of a page or script: lines up to an empty one."""
    found = [(Prose(), False)]
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            found.append((Prose(), False))
        found[-1][0].add(line.strip().lstrip("#").strip(), number)
    return found


def faults(prose, is_documentation):
    for match in ABSENT.finditer(prose.text):
        word = match.group().split()[1].lower()
        yield prose.lines[match.start()], f'"{match.group().strip()}": {ABSENT_RULE[word]}'
    for match in BEGINNING.finditer(prose.text) if is_documentation else []:
        yield prose.lines[match.start()], 'a /// sentence begins with "What": begin with its verb or noun'


def british(text):
    for number, line in enumerate(text.splitlines(), 1):
        for match in BRITISH_PART.finditer(line):
            yield number, f'"{match.group()}" is British: write "{BRITISH[match.group().lower()]}"'


def main(root=ROOT):
    errors, paths = [], files(root, "cohort/*.cpp", "cohort/*.h", "tools/*.cpp", "tools/*.h", "tools/*.py", "tools/*.sh",
                              "examples/*.cpp", "examples/*.h", "docs/*.md", "README.md")
    for path in paths:
        name = path.relative_to(root).as_posix()
        read = {".py": python_prose, ".cpp": cpp_prose, ".h": cpp_prose}.get(path.suffix, paragraphs)
        for prose, is_documentation in read(path.read_text()):
            errors += [(name, line, rule) for line, rule in faults(prose, is_documentation)]
    for path in files(root, "*.cpp", "*.h", "*.py", "*.md", "*.sh", "*.txt"):
        if path.name not in MAY_BE_BRITISH:
            name = path.relative_to(root).as_posix()
            errors += [(name, line, rule) for line, rule in british(path.read_text())]
    report("english", [f"{name}:{line}: {rule}" for name, line, rule in sorted(set(errors))], f"{len(paths)} files")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
