#!/usr/bin/env python3
"""An #include points down only: each layer may include the layers named here and no other layer of the project, and each subfolder of
a layer with subfolders may include only the subfolders named with it."""
import pathlib
import re
import sys

from sources import ROOT, files, report

BELOW = {
    "base": [],
    "store": ["base"],
    "rendezvous": ["base", "store"],
    "shm": ["base"],
    "snapshot": ["base", "store", "shm"],
    "elastic": ["base", "store", "rendezvous", "snapshot"],
    "job": ["base", "store", "rendezvous", "shm"],
    "pipeline": ["base"],
    "files": ["base"],
    "report": ["base", "files"],
    "comm": ["base", "rendezvous", "shm", "job"],
    "mesh": ["base", "comm"],
    "dtensor": ["base", "comm", "mesh"],
    "parallel": ["base", "shm", "job", "pipeline", "comm", "mesh", "dtensor"],
    "data": ["base", "files", "comm"],
    "checkpoint": ["base", "snapshot", "job", "files", "comm", "mesh", "dtensor", "parallel", "data"],
    "models": ["base", "files", "pipeline", "comm", "checkpoint"],
    "train": ["base", "rendezvous", "snapshot", "job", "comm", "mesh", "dtensor", "parallel", "data", "checkpoint", "models", "report"],
    # The second library: no layer above includes one of these.
    "extras/files": ["base", "files"],
    "extras/report": ["base", "files", "report", "extras/files"],
    "extras/data": ["base", "files", "comm", "data", "extras/files"],
    "extras/models": ["models"],
    "extras/train": ["base", "report", "comm", "train", "extras/report"],
}
# Folders of a layer, lowest first. The backends are at the same level; the registry chooses between them.
BACKENDS = ["gloo", "nccl", "shm"]
SUBFOLDERS = {
    "comm": {
        "release": [],
        "error": [],
        "call": [],
        "notes": [],
        "overrides": [],
        "pickle": ["error"],
        "memory": ["error"],
        "watch": ["error", "call"],
        "tensors": ["error"],
        "backend": ["error", "watch", "tensors"],
        **{backend: ["error", "call", "tensors", "backend", "watch"] for backend in BACKENDS},
        "registry": ["backend", "watch", *BACKENDS],
        "start": ["error", "watch"],
        "group": ["error", "memory", "tensors", "backend", "watch", "registry", "start"],
        "collectives": ["error", "tensors", "backend", "watch", "registry", "group", "pickle"],
        "agreement": ["error", "watch", "group", "collectives", "pickle"],
        "process": ["error", "tensors", "backend", "watch", "group"],
        "report": ["error"],
    },
    "base": {
        "error": [],
        "numbers": [],
        "text": ["error", "numbers"],
        "pickle": ["error", "text", "numbers"],
        "system": ["error", "text"],
        "file": ["error", "text", "system"],
        "machine": ["error", "text", "system", "file"],
        "log": ["text", "system", "file"],
        "process": ["error", "text", "system", "file", "log"],
        "net": ["error", "text", "system", "file"],
    },
    "rendezvous": {
        "environment": [],
        "rounds": ["environment"],
        "": ["environment", "rounds"],
    },
    "store": {
        "keys": [],
        "stream": ["keys"],
        "tls": ["keys", "stream"],
        "tcp": ["keys", "stream", "tls"],
        "file": ["keys", "tcp"],
        "etcd": ["keys", "stream", "tls"],
    },
    "elastic": {
        "events": [],
        "processes": ["events"],
        "output": ["events"],
        "plan": ["processes", "output", "events"],
        "report": ["processes", "output", "events", "plan"],
        "workers": ["events", "processes", "output", "plan", "report"],
        "agent": ["events", "processes", "output", "plan", "report", "workers"],
    },
    "shm": {
        "terms": [],
        "plan": [],
        "kernels": ["terms"],
        "memory": ["terms"],
        "arena": ["memory"],
        "trace": ["terms"],
        "transfer": ["terms", "memory", "arena", "trace"],
        "segment": ["arena", "trace", "transfer"],
        "report": ["terms", "trace", "segment"],
        "engine": ["terms", "plan", "kernels", "memory", "arena", "trace", "transfer", "segment", "report"],
    },
    "files/tensors": {
        "elements": [],
        "pt": ["elements"],
        "safetensors": ["elements"],
        "plan": ["elements", "safetensors"],
        "dcp": ["elements", "pt", "safetensors", "plan"],
        "sources": ["elements", "pt", "safetensors", "plan", "dcp"],
    },
    # Headers for users are in the folder itself, above its subfolders.
    "parallel/fsdp": {
        "settings": [],
        "tensors": ["settings"],
        "groups": ["settings", "tensors"],
        "host": ["settings", "tensors", "groups"],
        "gathered": ["settings", "tensors", "groups"],
        "": ["settings", "tensors", "groups", "host", "gathered"],
    },
    "parallel/ddp": {
        "settings": [],
        "buckets": ["settings"],
        "engines": ["settings", "buckets"],
        "hooks": ["settings", "buckets"],
        "": ["settings", "buckets", "engines", "hooks"],
    },
    "parallel/pipeline": {"transfer": [], "": ["transfer"]},
    "train": {
        "": [],
        "optim": [],
        "metrics": [],
        "logging": [""],
        "config": ["logging", ""],
        "strategy": ["metrics", "logging", "optim", "config", ""],
        "run": ["metrics", "logging", "strategy", ""],
        "trainer": ["metrics", "logging", "optim", "config", "strategy", "run", ""],
    },
    "dtensor": {"wrapper": [], "dispatch": ["wrapper"], "rules": ["wrapper", "dispatch"], "api": ["wrapper", "dispatch", "rules"]},
    "parallel": {
        "module": [],
        "activation": ["module"],
        "precision": ["module"],
        "norm": [],
        "functional": [],
        "optim": ["module"],
        "data_parallel": ["module"],
        "ddp": ["module", "norm", "functional", "optim"],
        "fsdp": ["module", "optim"],
        "zero": ["module", "optim", "ddp", "fsdp"],
        "tensor": ["module", "fsdp"],
        "context": ["functional", "tensor"],
        "dims": [],
        "pipeline": ["module", "precision", "optim", "ddp", "fsdp"],
    },
    "checkpoint": {
        "optimizer": [],
        "state": ["optimizer"],
        "file": ["optimizer", "state"],
        "sharded": ["optimizer", "state", "file"],
        "checkpointer": ["optimizer", "state", "file", "sharded"],
        "recovery": ["optimizer", "state", "file", "sharded", "checkpointer"],
    },
    "files": {"input": [], "tensors": ["input"], "checkpoints": ["input", "tensors"], "tokens": ["input"]},
    "report": {"records": [], "terminal": [], "system": ["records"], "progress": ["records", "terminal"], "config": ["records"]},
    "data": {"datasets": [], "samplers": [], "loader": ["datasets", "samplers"]},
    "extras/files": {"arrays": [], "images": [], "sets": ["arrays", "images"], "synthetic": ["images", "sets"]},
    "extras/report": {"records": [], "events": [], "plots": []},
    "extras/data": {"datasets": [], "transforms": [], "augmentation": ["transforms"]},
}
WITHOUT_TORCH = ["base", "store", "rendezvous", "shm", "snapshot", "elastic", "job", "pipeline", "files", "report",
                 "extras/files", "extras/report"]
# Programs, and the layers that they use.
TOOLS = {"tools/cohort": ["base", "store", "rendezvous", "elastic"], "tools/cohort-data": ["base", "files", "extras/files"],
         "tools/cohort-ckpt": ["base", "files"]}
PICTURE_IN = "HACKING.md"
FOR_ALL = ["cohort/export.h", "cohort/version.h"]
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')


def layer_of(path):
    """Returns "comm" for "cohort/comm/group/device.h", "extras/models" for "cohort/extras/models/resnet.h"; None for other
    paths."""
    parts = pathlib.PurePath(path).parts
    depth = 3 if parts[1:2] == ("extras",) else 2
    return "/".join(parts[1:depth]) if parts[0] == "cohort" and len(parts) > depth else None


def subfolder_of(path, folder):
    """Returns the folder in `folder` that the file is in, "" for `folder` itself; None if the file is elsewhere."""
    inside = pathlib.PurePath(path)
    return next(iter(inside.relative_to(f"cohort/{folder}").parts[:-1]), "") if inside.is_relative_to(f"cohort/{folder}") else None


def subfolder_errors(path, number, target):
    """Checks an #include of one of the project's headers."""
    errors = []
    for folder, subfolders in SUBFOLDERS.items():
        subfolder, other = subfolder_of(path, folder), subfolder_of(target, folder)
        if subfolder in subfolders and other is not None and other != subfolder and other not in subfolders[subfolder]:
            errors.append(f"{path}:{number}: subfolder {folder}/{subfolder} must not include {folder}/{other} ({target})")
    return errors


def errors_of(path, lines):
    parts = pathlib.PurePath(path).parts
    if parts[0] == "tools":
        layer = "/".join(parts[:2])
        allowed, torch_free = TOOLS[layer], True
    elif layer := layer_of(path):
        if layer not in BELOW:
            return [f"{path}:1: '{layer}' is not a layer (see BELOW in tools/dev/check_layers.py)"]
        allowed, torch_free = [layer] + BELOW[layer], layer in WITHOUT_TORCH
    else:
        return []
    errors = [f"{path}:1: not in a subfolder of {folder} (see SUBFOLDERS in tools/dev/check_layers.py)" for folder, subfolders in SUBFOLDERS.items()
              if subfolder_of(path, folder) is not None and subfolder_of(path, folder) not in subfolders]
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
            below = layer_of(target)
            if below is None:
                errors.append(f"{path}:{number}: {target} is for users; include the narrow header")
            elif below not in allowed and not (layer in TOOLS and target.startswith("tools/")):
                errors.append(f"{path}:{number}: layer {layer} must not include {below} ({target})")
            errors += subfolder_errors(path, number, target)
    return errors


def height_of(layer):
    return 1 + max((height_of(below) for below in BELOW[layer]), default=0)


def picture():
    """The first library's layers, highest first, each with those right below it; what those stand on is left out."""
    lines = []
    for layer in sorted((name for name in BELOW if "/" not in name), key=lambda name: (-height_of(name), name)):
        through = {deeper for below in BELOW[layer] for deeper in BELOW[below]}
        right_below = [below for below in BELOW[layer] if below not in through]
        torch = "" if layer in WITHOUT_TORCH else "*"
        lines.append(f"    {layer + torch:11} --> {', '.join(reversed(right_below)) or '(nothing of ours)'}")
    return "\n".join(lines) + "\n"


def picture_errors(root):
    text = pathlib.Path(root, PICTURE_IN).read_text()
    return [] if picture() in text else [f"{PICTURE_IN}:1: its picture of the layers is not that of check_layers.py --picture"]


def main(root=ROOT):
    paths = files(root, "cohort/*.h", "cohort/*.cpp", *(f"{tool}/*.{kind}" for tool in TOOLS for kind in ["h", "cpp"]))
    errors = []
    for path in paths:
        errors += errors_of(str(path.relative_to(root)), path.read_text().splitlines())
    errors += picture_errors(root)
    report("layers", errors, f"{len(paths)} files")


if __name__ == "__main__":
    if sys.argv[1:] == ["--picture"]:
        sys.exit(print(picture(), end=""))
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
