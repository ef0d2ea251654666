#!/usr/bin/env python3
"""Writes compile commands of some sources for clang-tidy: one per source, with unity builds split, without the precompiled
header.

    tools/dev/tidy_commands.py BUILD FOLDER SOURCE ...

Writes FOLDER/compile_commands.json and prints the sources that BUILD compiles, those without LibTorch first.
"""
import json
import pathlib
import re
import shlex
import sys

from sources import ROOT

PRECOMPILED = re.compile(r"cmake_pch")


def words_for_clang(command, source):
    """Returns the arguments of a compile command that determine how the source is read."""
    kept, words = [], iter([word for word in shlex.split(command) if word != "-Xclang"])
    for word in words:
        if word in ("-o", "-MF", "-MT", "-c"):
            next(words)
        elif word == "-include":
            name = next(words)
            if not PRECOMPILED.search(name):
                kept += [word, name]
        elif word.startswith(("-I", "-D", "-std=")):
            kept.append(word)
        elif word == "-isystem":
            kept += [word, next(words)]
    return ["c++", *kept, "-c", str(source)]


def sources_of(entry):
    """Returns the sources that a command compiles: those that a unity file includes, or its own."""
    file = pathlib.Path(entry["directory"], entry["file"])
    if "/Unity/unity_" in str(file):
        if not file.exists():
            return []
        return [pathlib.Path(name).resolve() for name in re.findall(r'^#include "(.+)"', file.read_text(), re.M)]
    return [file.resolve()]


def main(build, folder, names):
    wanted = {pathlib.Path(ROOT, name).resolve(): name for name in names}
    entries, found = [], {}
    for entry in json.loads(pathlib.Path(build, "compile_commands.json").read_text()):
        for source in sources_of(entry):
            if source in wanted and source not in found:
                words = words_for_clang(entry["command"], source)
                found[source] = any("torch/include" in word for word in words)
                entries.append({"directory": entry["directory"], "file": str(source), "arguments": words})
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    pathlib.Path(folder, "compile_commands.json").write_text(json.dumps(entries, indent=1))
    for source in sorted(found, key=lambda source: (found[source], wanted[source])):
        print(wanted[source])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
