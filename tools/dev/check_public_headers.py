#!/usr/bin/env python3
"""A wall around the public API: cmake/public_headers.cmake names its headers, which include each other and narrow headers of
LibTorch only. `--installed FOLDER` compares an installed include folder with the list."""
import pathlib
import re
import sys

from sources import ROOT, files, report, without_comments

LIST = "cmake/public_headers.cmake"
UMBRELLA = "cohort/cohort.h"
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.M)
# Headers that a user's program would need to have installed, or that cost 20 s per source.
NOT_FOR_USERS = re.compile(r"^(nlohmann/|CLI/|fmt/|openssl/|boost/|gloo/|torch/torch\.h$|torch/all\.h$|torch/extension\.h$)")


def listed(root):
    """COHORT_PUBLIC_HEADERS, which the umbrella must reach, and COHORT_NARROW_HEADERS and COHORT_EXTRAS_HEADERS, which it must not."""
    text = re.sub(r"#[^\n]*", "", pathlib.Path(root, LIST).read_text())
    found = dict(re.findall(r"set\((\w+)\s+([^)]*)\)", text))
    return tuple(found.get(f"COHORT_{kind}_HEADERS", "").split() for kind in ("PUBLIC", "NARROW", "EXTRAS"))


def includes_of(root, header):
    text = pathlib.Path(root, header).read_text()
    return [(text.count("\n", 0, match.start(1)) + 1, match.group(1)) for match in INCLUDE.finditer(text)]


def reached_from(root, header):
    reached, waiting = set(), [header]
    while waiting:
        current = waiting.pop()
        if current not in reached and pathlib.Path(root, current).is_file():
            reached.add(current)
            waiting += [name for _, name in includes_of(root, current) if name.startswith("cohort/")]
    return reached


def list_errors(root, for_all, narrow):
    reached = reached_from(root, UMBRELLA)
    errors = [f"{LIST}:1: {name} is listed, but there is no such file" for name in for_all + narrow
              if not pathlib.Path(root, name).is_file()]
    errors += [f"{LIST}:1: {name} is listed twice" for name in sorted(set(for_all + narrow))
               if (for_all + narrow).count(name) > 1]
    errors += [f"{UMBRELLA}:1: reaches {name}, which {LIST} does not list" for name in sorted(reached - set(for_all))]
    errors += [f"{LIST}:1: {name} is listed as public, but {UMBRELLA} does not reach it" for name in for_all
               if name not in reached and pathlib.Path(root, name).is_file() and name != UMBRELLA]
    return errors


def header_errors(root, header, public):
    errors = []
    for number, name in includes_of(root, header):
        if name.startswith(("cohort/", "tests/", "tools/")) and name not in public:
            errors.append(f"{header}:{number}: a public header includes {name}, which {LIST} does not list")
        elif NOT_FOR_USERS.match(name):
            errors.append(f"{header}:{number}: a public header must not include <{name}>")
    for number, line in enumerate(pathlib.Path(root, header).read_text().splitlines(), 1):
        if line.startswith("//") and re.search(r"private to", line, re.I):
            errors.append(f"{header}:{number}: says that it is private, but {LIST} lists it")
    return errors


def export_errors(root, public):
    """Checks that COHORT_API is only on what users can include, and that other exports name their users."""
    errors = []
    for path in files(root, "cohort/*.h"):
        name = path.relative_to(root).as_posix()
        if name == "cohort/export.h":
            continue
        for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1):
            words = set(re.findall(r"\bCOHORT_\w*API\b", line))
            if name in public and words - {"COHORT_API"}:
                errors.append(f"{name}:{number}: {LIST} lists this header; export its names with COHORT_API")
            elif name not in public and "COHORT_API" in words:
                errors.append(f"{name}:{number}: COHORT_API, but {LIST} does not list this header; "
                              "see cohort/export.h for the other words")
    return errors


def installed_errors(folder, public):
    installed = {path.relative_to(folder).as_posix() for path in pathlib.Path(folder).rglob("*") if path.is_file()}
    return ([f"{folder}/{name}: is installed, but {LIST} does not list it" for name in sorted(installed - public)] +
            [f"{folder}/{name}: {LIST} lists it, but it is not installed" for name in sorted(public - installed)])


def main(root=ROOT, installed=None):
    for_all, narrow, extras = listed(root)
    core = set(for_all + narrow)
    public = core | set(extras)
    errors = list_errors(root, for_all, narrow + extras) + export_errors(root, public)
    for header in sorted(public):
        if pathlib.Path(root, header).is_file():
            errors += header_errors(root, header, core if header in core else public)
    if installed:
        with_extras = pathlib.Path(installed, "cohort/extras").is_dir()
        errors += installed_errors(installed, public if with_extras else core)
    report("public headers", errors, f"{len(public)} headers" + (", as installed" if installed else ""))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    folder = arguments[arguments.index("--installed") + 1] if "--installed" in arguments else None
    main(pathlib.Path(arguments[0]) if arguments and arguments[0] != "--installed" else ROOT, folder)
