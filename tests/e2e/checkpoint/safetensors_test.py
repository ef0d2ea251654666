"""Files in the safetensors format: Python's package and ours read each other, and refuse the same bad ones."""
import json
import struct
import subprocess

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
          torch.uint16, torch.uint32, torch.uint64, torch.complex64]


@pytest.fixture
def copy(programs, tmp_path):
    """Sends a file through C++ (load_file, save_file); returns the finished process and the copy's path."""

    def run(path):
        to = tmp_path / "copy.safetensors"
        return subprocess.run([programs / "copy_safetensors", path, to], capture_output=True, text=True, timeout=300), to

    return run


def same_bytes(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.reshape(-1).view(torch.uint8),
                                                                     b.reshape(-1).view(torch.uint8))


def test_every_dtype_there_and_back(copy, tmp_path):
    torch.manual_seed(0)
    tensors = {}
    for dtype in DTYPES:
        raw = torch.randint(0, 2 if dtype == torch.bool else 256, (24,), dtype=torch.uint8)
        tensors[str(dtype)] = raw.view(dtype).clone()
    save_file(tensors, tmp_path / "python.safetensors", metadata={"format": "pt", "é": "\n\"x\""})
    done, path = copy(tmp_path / "python.safetensors")
    assert done.returncode == 0, done.stderr
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert same_bytes(loaded[name], tensor), name
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt", "é": "\n\"x\""}


def test_shapes_and_odd_names(copy, tmp_path):
    tensors = {"scalar": torch.tensor(2.5), "empty": torch.zeros(2, 0, 3), "": torch.ones(1), "a.b \"c\" é": torch.eye(3),
               "odd": torch.arange(7, dtype=torch.uint8), "big": torch.randn(1000, 33)}
    save_file(tensors, tmp_path / "python.safetensors")
    done, path = copy(tmp_path / "python.safetensors")
    assert done.returncode == 0, done.stderr
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    assert all(same_bytes(loaded[name], tensor) for name, tensor in tensors.items())


def test_no_tensors(copy, tmp_path):
    save_file({}, tmp_path / "python.safetensors")
    done, path = copy(tmp_path / "python.safetensors")
    assert done.returncode == 0, done.stderr
    assert load_file(path) == {}


def u8(begin, end, shape=None):
    return {"dtype": "U8", "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


GOOD = json.dumps({"a": u8(0, 2)})
BAD = {
    "nothing": b"",
    "short length": b"\1\0\0",
    "length past the end": struct.pack("<Q", 1000) + b"{}",
    "huge length": struct.pack("<Q", 2**63) + b"{}",
    "header over the limit": struct.pack("<Q", 100_000_001) + b"{}",
    "not JSON": (b"{]", b""),
    "not an object": (b"[]", b""),
    "not UTF-8": (b'{"\xff":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "unknown dtype": (json.dumps({"a": dict(u8(0, 1), dtype="U9")}), b"x"),
    "no shape": (json.dumps({"a": {"dtype": "U8", "data_offsets": [0, 1]}}), b"x"),
    "negative shape": (json.dumps({"a": u8(0, 1, [-1])}), b"x"),
    "shape that overflows": (json.dumps({"a": u8(0, 0, [2**32, 2**32])}), b""),
    "offsets past the end": (json.dumps({"a": u8(0, 9)}), b"x"),
    "offsets backwards": (json.dumps({"a": u8(1, 0, [1])}), b"x"),
    "size that does not fit": (json.dumps({"a": u8(0, 2, [3])}), b"xx"),
    "overlap": (json.dumps({"a": u8(0, 2), "b": u8(1, 3)}), b"xxx"),
    "gap": (json.dumps({"a": u8(0, 1), "b": u8(2, 3)}), b"xxx"),
    "gap at the start": (json.dumps({"a": u8(1, 2)}), b"xx"),
    "data left over": (GOOD, b"xxx"),
    "data missing": (GOOD, b"x"),
    "metadata that is not text": (json.dumps({"__metadata__": {"a": 1}}), b""),
    "duplicate name": ('{"a":%s,"a":%s}' % (json.dumps(u8(0, 1)), json.dumps(u8(1, 2))), b"xx"),
}


@pytest.mark.tier_all
@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_both(copy, tmp_path, name):
    content = BAD[name]
    if isinstance(content, tuple):
        header = content[0] if isinstance(content[0], bytes) else content[0].encode()
        content = struct.pack("<Q", len(header)) + header + content[1]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    done, to = copy(path)
    assert done.returncode == 1
    assert done.stderr.startswith(f'[cohort] load_file: cannot read "{path}"\n  caused by: '), done.stderr
    assert not to.exists()
    with pytest.raises(SafetensorError):
        load_file(path)


def test_the_good_file_those_are_made_from_loads(copy, tmp_path):
    path = tmp_path / "good.safetensors"
    path.write_bytes(struct.pack("<Q", len(GOOD)) + GOOD.encode() + b"\1\2")
    done, to = copy(path)
    assert done.returncode == 0, done.stderr
    assert load_file(to)["a"].tolist() == [1, 2]
    assert load_file(path)["a"].tolist() == [1, 2]
