#!/usr/bin/env python3
"""A compiler launcher that takes each object of Cohort from another build of the same sources, where the command is the same.

    reuse_objects.py BUILD OTHER_BUILD COMPILER ARGUMENT ...

A project that contains Cohort by add_subdirectory compiles it, in its folder BUILD, by commands of its own making. Where such a
command reads what the one of OTHER_BUILD reads and has the same flags, its object is the same, too, and is linked to here
instead of made again. A difference in flags is an error: a user's library would not be the one that was tested. What OTHER_BUILD
has not compiled, or before its source changed, is compiled; so is whatever does not belong to Cohort.
"""
import json
import os
import pathlib
import re
import shlex
import sys

# Without any effect on what an object does: warnings that are errors, what the compiler cache needs, and whether names are
# exported that only tests call.
MAY_DIFFER = {"-Werror", "-fpch-preprocess", "-fno-pch-timestamp", "-DCOHORT_WITHOUT_TEST_EXPORTS"}
OUTPUTS = ("-o", "-MF", "-MT", "-MQ")


def value_of(words, flag):
    return words[words.index(flag) + 1] if flag in words else None


def flags_of(words, own, common):
    """The words that matter, with the build folder `own` written as `common`."""
    kept, left = [], iter(words)
    for word in left:
        if word == "-Xclang":  # what follows is for the compiler proper, and says enough
            continue
        if word in OUTPUTS:
            next(left)
        elif word not in MAY_DIFFER and word != "-MD":
            kept.append(word.replace(own, common))
    return kept


def without_launcher(words, compiler):
    return words[words.index(compiler):]


def target_of(words):
    """CMake's target that an object belongs to: a source may be in two."""
    found = re.search(r"CMakeFiles/([^/]+)\.dir/", value_of(words, "-o"))
    return found and found[1]


def entry_of(other, source, target):
    for entry in json.loads(pathlib.Path(other, "compile_commands.json").read_text()):
        if entry["file"] == source and target_of(shlex.split(entry["command"])) == target:
            return entry
    return None


def reusable(build, other, command):
    """The object that stands for this command's; None where there is none. Ends the program where the flags differ."""
    source = value_of(command, "-c")
    known = source.replace(build, other)
    entry = entry_of(other, known, target_of(command))
    if entry is None:
        return None
    theirs = without_launcher(shlex.split(entry["command"]), command[0])
    ours = flags_of(command, build, other)
    if sorted(ours) != sorted(flags_of(theirs, other, other)):
        theirs = flags_of(theirs, other, other)
        sys.exit(f"{source}: Cohort inside another project is compiled with other flags than by itself\n"
                 f"  only inside: {' '.join(word for word in ours if word not in theirs)}\n"
                 f"  only by itself: {' '.join(word for word in theirs if word not in ours)}")
    made = pathlib.Path(entry["directory"], value_of(theirs, "-o"))
    if source != known and not same_text(source, known, build, other):
        return None
    # A file of a unity build is older than its sources; ninja has made the objects anew before any test runs.
    if not made.exists() or made.stat().st_mtime < pathlib.Path(known).stat().st_mtime:
        return None
    return made


def same_text(source, known, build, other):
    """Generated files: the parts of a unity build, the precompiled header."""
    try:
        return pathlib.Path(source).read_text().replace(build, other) == pathlib.Path(known).read_text()
    except OSError:
        return False


def main(build, other, command):
    if "-c" not in command or "-o" not in command:
        os.execvp(command[0], command)
    made = reusable(build, other, command)
    with open(pathlib.Path(build, "reused.txt"), "a") as log:
        log.write(f"{'taken' if made else 'compiled'} {value_of(command, '-c')}\n")
    if made is None:
        os.execvp(command[0], command)
    output = pathlib.Path(value_of(command, "-o"))
    output.unlink(missing_ok=True)
    output.symlink_to(made)
    if "-MF" in command:
        pathlib.Path(value_of(command, "-MF")).write_text(f"{value_of(command, '-MT') or output}:\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
