#!/usr/bin/env python3
"""Writes tests/timings.json from the results of a finished test run: how long each test takes, so that the longest begin.

    tools/dev/write_timings.py [FOLDER]      default: build/test-logs; tests that did not run there keep their figures

ctest: seconds of each test above LEAST; pytest: of each file.
"""
import collections
import json
import pathlib
import sys
import xml.etree.ElementTree

from sources import ROOT

LEAST = 1.0
TIMINGS = ROOT / "tests/timings.json"


def cases(path):
    return xml.etree.ElementTree.parse(path).iter("testcase") if path.exists() else []


def merged(old, folder):
    ctest, pytest, seen = dict(old["ctest"]), collections.Counter(), set()
    for case in cases(folder / "ctest.xml"):
        name, seconds = case.get("name"), float(case.get("time") or 0)
        ctest.pop(name, None)
        if seconds >= LEAST:
            ctest[name] = round(seconds, 1)
    for runner in ("pytest", "alone"):
        for case in cases(folder / f"{runner}.xml"):
            file = f"{(case.get('classname') or '').replace('.', '/')}.py"
            pytest[file] += float(case.get("time") or 0)
            seen.add(file)
    rest = {file: seconds for file, seconds in old["pytest"].items() if file not in seen and (ROOT / file).exists()}
    return {"ctest": dict(sorted(ctest.items())), "pytest": dict(sorted({**rest, **{file: round(pytest[file], 1) for file in seen}}.items()))}


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/test-logs"
    TIMINGS.write_text(json.dumps(merged(json.loads(TIMINGS.read_text()), folder), indent=1) + "\n")
