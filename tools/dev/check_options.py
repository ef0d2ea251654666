#!/usr/bin/env python3
"""Options in one order: a table in docs/ whose first heading names a struct (`NameOptions` or `NameOptions::`), and a list below a
line such as "Fields of `NameOptions`, with their defaults:", has members of it in the order in which its public header declares
them. C++ takes designated initializers in that order alone."""
import pathlib
import re
import sys

import class_members
from sources import ROOT, files, report

HEADING = re.compile(r"^\|[^|`]*((?:`[\w:]+`[^|`]*)+)\|")
LIST = re.compile(r"Fields of ((?:`[\w:]+`(?:, | and )?)+)[^`]*:$")
ITEM = re.compile(r"- ((?:`[^`]+`(?:, | and )?)+)")
NAME = re.compile(r"`(?:\w+::)*?(\w+?)(?:::)?`")


def structs(root):
    """Name of each struct of the headers -> lists of member names; several structs may have one name."""
    found = {}
    for path in files(root, "cohort/*.h"):
        for each in class_members.classes(path.read_text()):
            if each.keyword == "struct":
                found.setdefault(each.name, []).append(each.members)
    return found


def tables(text):
    """(line, heading, rows) of each table; a row is (line, its first cell)."""
    lines, at = text.splitlines(), 0
    while at < len(lines):
        if lines[at].startswith("|") and at + 1 < len(lines) and re.match(r"\|[\s:|-]+$", lines[at + 1]):
            heading, first, rows = lines[at], at + 1, []
            at += 2
            while at < len(lines) and lines[at].startswith("|"):
                rows.append((at + 1, re.split(r"(?<!\\)\|", lines[at])[1]))
                at += 1
            yield first, heading, rows
        at += 1


def lists(text):
    """The same of each list of fields; its first cell is the code at the beginning of an item."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if match := LIST.match(line):
            rows, number = [], at + 2
            while number < len(lines) and lines[number].startswith(("- ", "  ")):
                if item := ITEM.match(lines[number]):
                    rows.append((number + 1, item.group(1)))
                number += 1
            yield at + 1, f"| {match.group(1)} |", rows


def problem(rows, names):
    """Why the rows do not follow the members, or None."""
    last, last_name = -1, ""
    for line, cell in rows:
        for name in re.findall(r"`(\w+)[^`]*`", cell):
            if name not in names:
                return line, f"has no member {name}"
            if names.index(name) <= last:
                return line, f"declares {name} before {last_name}"
            last, last_name = names.index(name), name
    return None


def errors_of(where, text, known):
    errors = []
    for _, heading, rows in [*tables(text), *lists(text)]:
        match = HEADING.match(heading)
        named = [struct for struct in NAME.findall(match.group(1)) if struct in known] if match else []
        # Several structs of one name, or of one table: one of them has all the rows.
        problems = [(struct, problem(rows, names)) for struct in named for names in known[struct]]
        if problems and all(why for _, why in problems):
            struct, (line, why) = max(problems, key=lambda found: found[1][0])
            errors.append(f"{where}:{line}: {struct} {why}")
    return errors


def main(root=ROOT):
    known, errors, pages = structs(root), [], files(root, "docs/*.md")
    for path in pages:
        errors += errors_of(path.relative_to(root), path.read_text(), known)
    report("options", errors, f"{len(pages)} pages")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
