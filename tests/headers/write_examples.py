#!/usr/bin/env python3
"""Turns the code in the comments of the public headers into functions that the build compiles and nobody runs.

A block of code is indented by four columns or more, or stands in a fence that names its language: /// ```text is not C++. Nor is
a line that begins with "$ ". "..." stands for code that is left out. A block is compiled in its header's namespace, after
context/common.h and its header's section in context/*.inc.

    write_examples.py DEPFILE OUTPUT...        divides the headers among the outputs, and tells the build what they come from
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/dev"))

from check_namespaces import OLD_NAMES  # noqa: E402
from check_public_headers import LIST, listed  # noqa: E402

CONTEXT = "tests/headers/context"
DOC = re.compile(r"\s*///(.*)")
PLAIN = re.compile(r"\s*// {4,}\S")
INDENTED = re.compile(r" {5,}\S")
FENCE = re.compile(r"\s*```(.*)")
# Comments and strings, which stay as they are; the head of a loop; and code that is left out.
LEFT_OUT = re.compile(r'//.*|"(?:\\.|[^"\\])*"|(?<=for \()\.\.\.(?=\))|(?<![\w>&*(])\.\.\.(?!\w)(?: [\w ]+ \.\.\.)?')
DEFINITION = re.compile(r"(template|struct|class)\b|(?!return\b|else\b)[\w:<>,*& ]*[\w>*&] +[\w:]+\([^;=]*\) (const )?\{")
NAMESPACE = re.compile(r"^namespace (cohort[\w:]*) \{", re.M)
SECTION = re.compile(r"// (cohort/\S+\.h(?: cohort/\S+\.h)*)$")


class NoBlock(Exception):
    """A block that cannot be compiled, with the place in its header."""


def blocks(text):
    """Returns pairs: the number of the first line, and the lines of code."""
    docs = [match.group(1) if match else None for match in map(DOC.match, text.splitlines())]
    for number, line in enumerate(text.splitlines(), 1):
        if PLAIN.match(line):
            raise NoBlock(number, "code in a // comment; write ///")
    found, at = [], 0
    while at < len(docs):
        begin = at
        fence = FENCE.match(docs[at]) if docs[at] else None
        if fence:
            end = next((later for later in range(at + 1, len(docs)) if docs[later] is None or FENCE.match(docs[later])), len(docs))
            if end == len(docs) or docs[end] is None:
                raise NoBlock(begin + 1, "a fence without an end")
            if not fence.group(1):
                raise NoBlock(begin + 1, "a fence that names no language; write ```cpp, or ```text for what is not C++")
            if fence.group(1) == "cpp":
                found.append((begin + 2, docs[begin + 1:end]))
            at = end + 1
        elif docs[at] and INDENTED.match(docs[at]):
            while at < len(docs) and docs[at] is not None and (not docs[at].strip() or INDENTED.match(docs[at])):
                at += 1
            found.append((begin + 1, docs[begin:at]))
        else:
            at += 1
    return found


def code_of(first, lines):
    """Returns the block as a function, or as it is where it defines one, or a class."""
    def fill(match):
        word = match.group(0)
        return word if word[0] in '/"' else ";;" if match.start() and match.string[match.start() - 1] == "(" else ";"

    code = [LEFT_OUT.sub(fill, "" if line.lstrip().startswith("$ ") else line) for line in lines]
    bare = re.sub(r'//.*|"(?:\\.|[^"\\])*"', "", "\n".join(code))
    for pair in ("()", "[]", "{}"):
        if bare.count(pair[0]) != bare.count(pair[1]):
            raise NoBlock(first, f'a block with {bare.count(pair[0])} "{pair[0]}" and {bare.count(pair[1])} "{pair[1]}"')
    if not bare.strip():
        return ""
    text = "\n".join(code) + "\n"
    start = next(line.strip() for line in bare.splitlines() if line.strip())
    return text if DEFINITION.match(start) else f"  void block_{first}() {{\n#line {first}\n{text}}}\n"


def sections(root):
    """Returns the text that each header's blocks take as given, by the header's name."""
    found = {}
    for path in sorted((root / CONTEXT).glob("*.inc")):
        headers = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = SECTION.match(line)
            if match:
                headers = match.group(1).split()
            for header in headers:
                text = found.setdefault(header, "") or f'#line {number} "{path}"\n'
                found[header] = text + line + "\n"
    return found


def example_of(root, header, given):
    """Returns a namespace with the header's blocks, or "" for a header without blocks."""
    text = pathlib.Path(root, header).read_text()
    try:
        codes = [(first, code_of(first, lines)) for first, lines in blocks(text)]
        namespaces = NAMESPACE.findall(text.split(OLD_NAMES)[0])
        if codes and not namespaces:
            raise NoBlock(codes[0][0], "a block in a header without a namespace")
    except NoBlock as problem:
        sys.exit(f"{pathlib.Path(root, header)}:{problem.args[0]}: error: {problem.args[1]}")
    written = "".join(f'#line {first} "{pathlib.Path(root, header)}"\n{code}' for first, code in codes if code)
    if not written:
        return ""
    name = f"{namespaces[-1]}::{re.sub(r'[^a-z0-9]', '_', header)}"  # the last one: before it types of other layers are declared
    return f"namespace {name} {{\nusing namespace cohort::given;\nusing cohort::given::mesh;  // before namespace cohort::mesh\n{given.pop(header, '')}{written}}}  // namespace {name}\n\n"


def main(depfile, *outputs, root=ROOT):
    headers = [header for kind in listed(root) for header in kind]
    given = sections(root)
    examples = [example for example in (example_of(root, header, given) for header in headers) if example]
    if given:
        sys.exit(f"{root / CONTEXT}: error: sections of headers without a block: {' '.join(given)}")
    includes = "".join(f'#include "{header}"\n' for header in headers) + f'#include "{CONTEXT}/common.h"\n\n'
    read = [root / LIST, *(root / header for header in headers), *sorted((root / CONTEXT).glob("*"))]
    for index, output in enumerate(outputs):
        pathlib.Path(output).write_text(includes + "".join(examples[index::len(outputs)]))
    pathlib.Path(depfile).write_text(f"{outputs[0]}: " + " ".join(str(path) for path in read) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
