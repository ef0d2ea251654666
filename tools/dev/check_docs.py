#!/usr/bin/env python3
"""Maps that stay true: each layer has a README.md of at most 25 lines that names every folder with sources, and nothing that does not
exist; README.md has at most 200 lines, HACKING.md 80. No line of Markdown is wider than 130 columns."""
import pathlib
import re
import sys

from sources import ROOT, files, report

LINES_AT_THE_TOP = {"README.md": 200, "HACKING.md": 80}
LINES_OF_A_LAYER = 25
COLUMNS = 130
MIRRORS = "forward_declarations/"  # below it folders are those of another library
NAME = re.compile(r"`([\w./-]+(?:\.h|\.cpp|\.py|/))`")


def folders(root):
    """Folders below cohort/ that have sources, without cohort/ itself."""
    found = {path.parent for path in files(root, "cohort/*.h", "cohort/*.cpp")} - {pathlib.Path(root, "cohort")}
    return sorted(path for path in found if MIRRORS not in f"{path.parent}/")


def map_of(folder, maps):
    """The README that has to name the folder: the nearest one above it, or None."""
    return next((above for above in folder.parents if above in maps), None)


def folder_errors(root, maps):
    errors = []
    top = pathlib.Path(root, "cohort")
    for layer in sorted({pathlib.Path(top, path.relative_to(top).parts[0]) for path in folders(root)} - set(maps)):
        errors.append(f"{layer.relative_to(root)}/README.md:1: there is none; a layer has one that names its subfolders")
    for folder in folders(root):
        place = map_of(folder, maps)
        if place is not None and f"`{folder.relative_to(place)}/`" not in maps[place]:
            errors.append(f"{(place / 'README.md').relative_to(root)}:1: does not name `{folder.relative_to(place)}/`")
    return errors


def name_errors(root, place, text):
    errors = []
    inside = {path.name for path in place.rglob("*")}
    for number, line in enumerate(text.splitlines(), 1):
        for name in NAME.findall(line):
            here = name in inside if "/" not in name else (place / name).exists() or (root / "cohort" / name).exists()
            if not here and not (root / name).exists():
                errors.append(f"{(place / 'README.md').relative_to(root)}:{number}: there is no `{name}`")
    return errors


def length_error(path, root, limit):
    lines = len(path.read_text().splitlines())
    return [f"{path.relative_to(root)}:1: {lines} lines, it may have {limit}"] if lines > limit else []


def width_errors(path, root):
    return [f"{path.relative_to(root)}:{number}: {len(line)} columns, a line may have {COLUMNS}"
            for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > COLUMNS]


def main(root=ROOT):
    maps = {path.parent: path.read_text() for path in files(root, "cohort/*/README.md")}
    errors = folder_errors(root, maps)
    for place, text in maps.items():
        errors += name_errors(root, place, text) + length_error(place / "README.md", root, LINES_OF_A_LAYER)
    for path in files(root, *LINES_AT_THE_TOP):
        errors += length_error(path, root, LINES_AT_THE_TOP[path.relative_to(root).as_posix()])
    pages = files(root, "*.md")
    for path in pages:
        errors += width_errors(path, root)
    report("docs", errors, f"{len(maps)} maps, {len(pages)} pages")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
