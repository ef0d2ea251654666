#!/usr/bin/env python3
"""Replacements in LibTorch for the whole process: kernels only in one place, other globals only in the sources named here, and
all of them on the page, as two libraries that replace the same thing do not notice each other."""
import pathlib
import re
import sys

from sources import ROOT, files, report, without_comments

PAGE = "docs/design/libtorch_overrides.md"
ALLOWED = {
    r"torch::Library\b|\bTORCH_LIBRARY": "cohort/comm/overrides/",
    r"\bSetCPUAllocator\b": "cohort/comm/memory/shared_allocator.cpp",
    r"\bset_default_engine_stub\b": "cohort/parallel/activation/hooks_engine.cpp",
    r"\baddGlobalCallback\b": "cohort/comm/watch/unwrapped_training.cpp",
    r"\bat::set_num_threads\b": "cohort/comm/group/threads.cpp",
    r"\bset_terminate\b": "cohort/comm/group/process_exit.cpp",
}


def main(root=ROOT):
    page = root / PAGE
    listed = set(re.findall(r"`(\w+)`", page.read_text())) if page.exists() else set()
    errors, paths = [], files(root, "cohort/*.cpp", "cohort/*.h")
    for path in paths:
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        for number, line in enumerate(without_comments(text).splitlines(), 1):
            for pattern, allowed in ALLOWED.items():
                if (match := re.search(pattern, line)) and not name.startswith(allowed):
                    errors.append(f"{name}:{number}: {match.group()} is for {allowed} alone; see {PAGE}")
        if "override_kernel(" not in text:
            continue
        for match in re.finditer(r'"aten::(\w+)",', text):
            if match.group(1) not in listed:
                number = text.count("\n", 0, match.start()) + 1
                errors.append(f"{name}:{number}: the operator {match.group(1)} is not in {PAGE}")
    report("overrides", errors, f"{len(paths)} files")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
