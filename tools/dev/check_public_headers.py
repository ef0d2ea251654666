#!/usr/bin/env python3
"""A wall around the public API: cmake/public_headers.cmake names its headers, which include each other and narrow headers of
LibTorch only. cohort/cohort.h reaches those of COHORT_PUBLIC_HEADERS and COHORT_INNER_HEADERS alone; cohort/all.h includes those of
COHORT_PUBLIC_HEADERS and COHORT_NARROW_HEADERS, cohort/extras/all.h those of COHORT_EXTRAS_HEADERS. `--installed FOLDER` compares
an installed include folder with the lists."""
import pathlib
import re
import sys

from sources import ROOT, files, report, without_comments

LIST = "cmake/public_headers.cmake"
UMBRELLA, ALL, ALL_EXTRAS = "cohort/cohort.h", "cohort/all.h", "cohort/extras/all.h"
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.M)
# Headers that a user's program would need to have installed, or that cost 20 s per source.
NOT_FOR_USERS = re.compile(r"^(nlohmann/|CLI/|fmt/|openssl/|boost/|gloo/|torch/torch\.h$|torch/all\.h$|torch/extension\.h$)")


def listed(root):
    """Returns COHORT_PUBLIC_HEADERS, COHORT_INNER_HEADERS, COHORT_NARROW_HEADERS and COHORT_EXTRAS_HEADERS."""
    text = re.sub(r"#[^\n]*", "", pathlib.Path(root, LIST).read_text())
    found = dict(re.findall(r"set\((\w+)\s+([^)]*)\)", text))
    return tuple(found.get(f"COHORT_{kind}_HEADERS", "").split() for kind in ("PUBLIC", "INNER", "NARROW", "EXTRAS"))


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


def list_errors(root, names):
    errors = [f"{LIST}:1: {name} is listed, but there is no such file" for name in names if not pathlib.Path(root, name).is_file()]
    return errors + [f"{LIST}:1: {name} is listed twice" for name in sorted(set(names)) if names.count(name) > 1]


def reach_errors(root, public, inner):
    reached = reached_from(root, UMBRELLA)
    errors = [f"{UMBRELLA}:1: reaches {name}, which {LIST} does not list" for name in sorted(reached - {*public, *inner})]
    return errors + [f"{LIST}:1: {name} is listed as public, but {UMBRELLA} does not reach it" for name in public + inner
                     if name not in reached and pathlib.Path(root, name).is_file()]


def all_errors(root, header, names):
    """Checks that a header which brings everything includes exactly these names, itself excepted."""
    if header not in names or not pathlib.Path(root, header).is_file():
        return [f"{LIST}:1: does not list {header}"] if names and header not in names else []
    included, wanted = {name for _, name in includes_of(root, header)}, set(names) - {header}
    return ([f"{header}:1: does not include {name}, which {LIST} lists" for name in sorted(wanted - included)] +
            [f"{header}:1: includes {name}, which {LIST} does not list for users" for name in sorted(included - wanted)])


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
    for_all, inner, narrow, extras = listed(root)
    core = set(for_all + inner + narrow)
    public = core | set(extras)
    errors = list_errors(root, for_all + inner + narrow + extras) + reach_errors(root, for_all, inner)
    errors += all_errors(root, ALL, for_all + narrow) + all_errors(root, ALL_EXTRAS, extras) + export_errors(root, public)
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
