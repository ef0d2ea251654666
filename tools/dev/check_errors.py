#!/usr/bin/env python3
"""An Error becomes an exception only in cohort/comm/error/throw_error.h, so that all texts have one form."""
import pathlib
import re
import sys

from sources import ROOT, files, report, without_comments

PLACE = "cohort/comm/error/throw_error.h"
THROWS = re.compile(r"\b(TORCH_CHECK\w*|C10_THROW_ERROR|throw)\b[^;]*?\berror(?:\(\))?\s*(?:\.|->)\s*(?:describe|message)\(\)")


def main(root=ROOT):
    errors, paths = [], files(root, "cohort/*.cpp", "cohort/*.h")
    for path in paths:
        name = path.relative_to(root).as_posix()
        if name == PLACE:
            continue
        text = without_comments(path.read_text())
        for match in THROWS.finditer(text):
            errors.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group(1)} with the text of an Error; use "
                          f"or_throw, or_throw_value or throw_error ({PLACE})")
    report("errors", errors, f"{len(paths)} files")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
