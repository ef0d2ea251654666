#!/usr/bin/env python3
"""An arrow in an #include points down only: each layer may include the layers named here and nothing else of ours."""
import pathlib
import re
import sys

from sources import ROOT, files, report

BELOW = {
    "base": [],
    "store": ["base"],
    "rendezvous": ["base", "store"],
    "elastic": ["base", "store", "rendezvous"],
    "shm": ["base"],
    "job": ["base", "store", "rendezvous", "shm"],
    "comm": ["base", "rendezvous", "shm", "job"],
    "mesh": ["base", "comm"],
    "parallel": ["base", "shm", "comm", "mesh"],
    "data": ["base", "comm"],
    "checkpoint": ["base", "comm", "mesh"],
    "models": ["base", "comm"],
    "train": ["base", "comm", "mesh", "parallel", "data", "checkpoint", "models"],
}
WITHOUT_TORCH = ["base", "store", "rendezvous", "elastic", "shm", "job"]
FOR_ALL = ["cohort/export.h", "cohort/version.h"]
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')


def errors_of(path, lines):
    parts = pathlib.PurePath(path).parts
    if parts[:2] == ("tools", "cohort"):
        layer, allowed, torch_free = "tools/cohort", ["base", "store", "rendezvous", "elastic"], True
    elif parts[0] == "cohort" and len(parts) > 2:
        layer = parts[1]
        if layer not in BELOW:
            return [f"{path}:1: '{layer}' is not a layer (see BELOW in tools/dev/check_layers.py)"]
        allowed, torch_free = [layer] + BELOW[layer], layer in WITHOUT_TORCH
    else:
        return []
    errors = []
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = match.group(1)
        if torch_free and TORCH.match(target):
            errors.append(f"{path}:{number}: {layer} knows no LibTorch, but includes <{target}>")
        elif target.startswith("tests/") and parts[0] == "cohort":
            errors.append(f"{path}:{number}: the library includes a test's header, {target}")
        elif target.startswith("cohort/") and target not in FOR_ALL:
            below = target.split("/")[1]
            if below.endswith(".h"):
                errors.append(f"{path}:{number}: {target} is for users; include the narrow header")
            elif below not in allowed and not (layer == "tools/cohort" and target.startswith("tools/")):
                errors.append(f"{path}:{number}: layer {layer} must not include {below} ({target})")
    return errors


def main(root=ROOT):
    paths = files(root, "cohort/*.h", "cohort/*.cpp", "tools/cohort/*.h", "tools/cohort/*.cpp")
    errors = []
    for path in paths:
        errors += errors_of(str(path.relative_to(root)), path.read_text().splitlines())
    report("layers", errors, f"{len(paths)} files")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
