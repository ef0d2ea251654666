"""Files of goldens, without PyTorch: which release and which scripts made one, and whether these are those of today.

A file is of safetensors: a tensor of each dtype with all numbers of that dtype, and in the metadata, as JSON, where the numbers came from
and where they belong (golden.py).
"""
import ast
import hashlib
import json
import pathlib

WRITER = "tools/dev/write_goldens.py"
ROOT = pathlib.Path(__file__).resolve().parents[2]


class BadGolden(Exception):
    """A file that is none, or no longer whole."""


def shown(path):
    path = pathlib.Path(path)
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def path_of(test, part=""):
    test = pathlib.Path(test)
    return test.parent / "goldens" / f"{test.stem}{f'.{part}' if part else ''}.safetensors"


def owner_of(path):
    return path.parents[1] / f"{path.name.split('.')[0]}.py"


def with_imports(scripts):
    """These and the modules beside them that they import."""
    found = {}
    left = [pathlib.Path(script) for script in scripts]
    while left:
        script = left.pop()
        if script.name in found:
            continue
        found[script.name] = script
        for node in ast.walk(ast.parse(script.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None)]
            left += [script.with_name(f"{name}.py") for name in names if name and script.with_name(f"{name}.py").exists()]
    return [found[name] for name in sorted(found)]


def origin_of(scripts, arguments, release):
    """What numbers come from, as it is in a file."""
    return {"release": release, "arguments": json.loads(json.dumps(arguments)),
            "scripts": {script.name: hashlib.sha256(script.read_bytes()).hexdigest() for script in with_imports(scripts)}}


def read_metadata(path):
    """(origin, index)"""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 1 << 20)))
        golden = json.loads(header.pop("__metadata__")["golden"])
        size = 8 + length + max(tensor["data_offsets"][1] for tensor in header.values())
        is_whole = size == path.stat().st_size and golden["origin"].keys() == origin_of([], [], "").keys() and bool(golden["index"])
    except (ValueError, KeyError, TypeError, AttributeError):
        is_whole = False
    if not is_whole:
        raise BadGolden(f"{shown(path)} is no whole golden. Write it anew: {WRITER} {shown(owner_of(path))}")
    return golden["origin"], golden["index"]


def why_outdated(origin, now):
    """What has changed since, or "" for nothing."""
    if origin["release"] != now["release"]:
        return f"it is of PyTorch {origin['release']}, not {now['release']}"
    before, after = origin["scripts"], now["scripts"]
    if changed := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
        return f"changed since: {', '.join(changed)}"
    return "" if origin["arguments"] == now["arguments"] else "it is of other arguments"
