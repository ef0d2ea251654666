"""Files of torch.save: Python and C++ read each other, and what would run code is refused by name."""
import argparse
import collections
import io
import os
import pickle
import shutil
import struct
import subprocess
import zipfile

import numpy as np
import pytest
import torch

from harness import BUILD

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
          torch.float8_e8m0fnu, torch.uint16, torch.uint32, torch.uint64, torch.complex32, torch.complex64, torch.complex128]


@pytest.fixture
def copy(programs, tmp_path):
    """Sends a file through C++ (load, save); returns the finished process and the copy's path."""

    def run(path, *words, env=None):
        to = tmp_path / "copy.pt"
        done = subprocess.run([programs / "copy_torch_file", path, to, *words], capture_output=True, text=True, timeout=300,
                              env={**os.environ, **(env or {})})
        return done, to

    return run


@pytest.fixture
def through(copy, tmp_path):
    """The value after Python saved it, C++ copied it and Python loaded it."""

    def run(value, *words, **save):
        path = tmp_path / "python.pt"
        torch.save(value, path, **save)
        done, to = copy(path, *words)
        assert done.returncode == 0, done.stderr
        assert zipfile.ZipFile(to).testzip() is None
        return torch.load(to, weights_only=True)

    return run


def same(a, b):
    """Equal values of equal types; tensors to the bit, with shape, strides and place in their storage."""
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape, a.stride(), a.storage_offset()) == (b.dtype, b.shape, b.stride(), b.storage_offset())
        assert (a.requires_grad, a.is_conj(), a.is_neg()) == (b.requires_grad, b.is_conj(), b.is_neg())
        assert bytes(a.untyped_storage()) == bytes(b.untyped_storage())
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            same(one, other)
    else:
        assert a == b


def every_dtype():
    torch.manual_seed(0)
    tensors = {}
    for dtype in DTYPES:
        raw = torch.randint(0, 2 if dtype == torch.bool else 256, (48,), dtype=torch.uint8)
        tensors[str(dtype)] = raw.view(dtype).clone()
    return tensors


def contents():
    base = torch.arange(24.0).view(4, 6)
    return {
        "none": None, "flags": [True, False], "ints": [0, -1, 255, 65536, 2**31, -2**63, 2**63 - 1], "floats": (0.5, float("inf"), -0.0),
        "texts": ["", "é", "x" * 300], "bytes": b"\x00\xff\x80", "complex": complex(1, -2), "empty": [(), [], {}],
        1: "int", 0.5: "float", "nested": {"a": [{"b": (1, [2, (3,)])}]},
        "base": base, "transposed": base.t(), "part": base[1:3, ::2], "expanded": torch.ones(1).expand(2, 5), "scalar": torch.tensor(3.5),
        "zero": torch.zeros(0, 3), "grad": torch.ones(2, requires_grad=True), "conj": torch.randn(3, dtype=torch.complex64).conj(),
        "neg": torch.randn(3, dtype=torch.complex64).conj().imag, "device": torch.device("cpu"),
    }


@pytest.mark.parametrize("words", [(), ("mmap",), ("check",)])
def test_every_dtype_there_and_back(through, words):
    same(through(every_dtype(), *words), every_dtype())


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("words", [(), ("mmap",)])
def test_every_kind_of_value_there_and_back(through, copy, tmp_path, legacy, words):
    if legacy and words:
        torch.save(contents(), tmp_path / "python.pt", _use_new_zipfile_serialization=False)
        done, _ = copy(tmp_path / "python.pt", "mmap")
        assert done.returncode == 0, done.stderr  # what has no place of its own in memory is read
        return
    torch.manual_seed(0)
    expected = contents()
    torch.manual_seed(0)
    same(through(contents(), *words, _use_new_zipfile_serialization=not legacy), expected)


@pytest.mark.parametrize("words", [(), ("mmap",)])
@pytest.mark.parametrize("legacy", [False, True])
def test_what_shares_memory_shares_it_again(through, legacy, words):
    base = torch.arange(10.0)
    inner = [1]
    loaded = through({"a": base, "b": base[2:], "c": base, "list": inner, "again": inner}, *words, _use_new_zipfile_serialization=not legacy)
    assert loaded["a"] is loaded["c"] and loaded["list"] is loaded["again"]
    loaded["a"][2] = 77
    assert loaded["b"][0] == 77
    assert loaded["a"].untyped_storage().nbytes() == 40
    many = through([[i] for i in range(300)] * 2, *words, _use_new_zipfile_serialization=not legacy)
    assert all(many[i] is many[i + 300] and many[i] == [i] for i in range(300))


def test_python_types_become_plain(through):
    parameter = torch.nn.Parameter(torch.ones(2))
    attributed = torch.ones(2)
    attributed.note = "stays behind"
    value = {"ordered": collections.OrderedDict(a=1), "parameter": parameter, "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
             "attributed": attributed, "size": torch.Size([2, 3]), "counter": collections.Counter([1, 1]), "dtype": torch.float16,
             "args": argparse.Namespace(lr=0.1, sizes=[1, 2], scale=torch.ones(1)), "no args": argparse.Namespace(),
             "numpy": [np.float64(2.5), np.float32(0.5), np.int64(-3), np.bool_(True)]}
    for legacy in (False, True):
        loaded = through(value, _use_new_zipfile_serialization=not legacy)
        same(loaded, {"ordered": {"a": 1}, "parameter": torch.ones(2, requires_grad=True), "frozen": torch.ones(2),
                      "attributed": torch.ones(2), "size": (2, 3), "counter": {1: 2}, "dtype": "torch.float16",
                      "args": {"lr": 0.1, "sizes": [1, 2], "scale": torch.ones(1)}, "no args": {}, "numpy": [2.5, 0.5, -3, True]})


def test_state_dicts_of_modules_and_optimizers(through, copy, tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).sum().backward()
        optimizer.step()
        schedule.step()
    state = model.state_dict()
    loaded = through({"model": state, "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()})
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    same({key: value for key, value in loaded["model"].items()}, dict(state))
    assert loaded["schedule"]["_step_count"] == 4

    torch.save(state, tmp_path / "python.pt")
    done, to = copy(tmp_path / "python.pt", "state_dict")
    assert done.returncode == 0, done.stderr
    flat = torch.load(to, weights_only=True)
    assert type(flat) is collections.OrderedDict and list(flat) == list(state)

    nested = through({"model": state}, "metadata")["model"]
    assert type(nested) is collections.OrderedDict and nested._metadata == state._metadata
    assert list(nested) == list(state)


def test_the_file_is_laid_out_as_pythons(copy, tmp_path):
    value = {"a": torch.randn(3, 5), "b": torch.zeros(0), "c": torch.ones(7, dtype=torch.uint8)}
    torch.save(value, tmp_path / "python.pt")
    done, to = copy(tmp_path / "python.pt")
    assert done.returncode == 0, done.stderr
    ours, pythons = zipfile.ZipFile(to), zipfile.ZipFile(tmp_path / "python.pt")
    names = [entry.filename.replace("copy/", "python/") for entry in ours.infolist()]
    assert names == [entry.filename for entry in pythons.infolist()]
    for entry in ours.infolist():
        other = pythons.getinfo(entry.filename.replace("copy/", "python/"))
        assert (entry.flag_bits, entry.compress_type) == (other.flag_bits, other.compress_type)
        if "/data/" in entry.filename or entry.filename.endswith(("byteorder", ".format_version", ".storage_alignment", "version")):
            assert ours.read(entry) == pythons.read(other)
    assert os.stat(to).st_mode & 0o777 == 0o600
    # Python can then compute where storages lie instead of looking.
    from torch.utils.serialization import config
    config.load.calculate_storage_offsets = True
    os.environ["TORCH_SERIALIZATION_DEBUG"] = "1"
    try:
        same(torch.load(to, weights_only=True, mmap=True), value)
    finally:
        config.load.calculate_storage_offsets = False
        del os.environ["TORCH_SERIALIZATION_DEBUG"]


def rewrite(path, change=None, drop=(), add=None):
    """The zip file again, stored, with records changed: name without the folder -> bytes."""
    source = zipfile.ZipFile(path)
    folder = source.namelist()[0].split("/")[0] + "/"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in source.namelist():
            short = name.removeprefix(folder)
            if short not in drop:
                archive.writestr(name, (change or {}).get(short, source.read(name)))
        for name, data in (add or {}).items():
            archive.writestr(folder + name, data)
    return out.getvalue()


def test_files_of_the_other_byte_order(copy, tmp_path):
    value = every_dtype()
    torch.save(value, tmp_path / "little.pt")
    source = zipfile.ZipFile(tmp_path / "little.pt")
    changed = {"byteorder": b"big"}
    for key, tensor in enumerate(value.values()):
        width = tensor.element_size() // (2 if tensor.is_complex() else 1)
        data = np.frombuffer(source.read(f"little/data/{key}"), dtype=np.uint8).reshape(-1, width)
        changed[f"data/{key}"] = data[:, ::-1].tobytes()
    (tmp_path / "big.pt").write_bytes(rewrite(tmp_path / "little.pt", changed))
    for words in ((), ("mmap",)):
        done, to = copy(tmp_path / "big.pt", *words)
        assert done.returncode == 0, done.stderr
        same(torch.load(to, weights_only=True), value)


@pytest.fixture
def error_of(copy, tmp_path):
    """What C++ says of a file with these bytes, without the path."""

    def run(data, *words, env=None):
        path = tmp_path / "bad.pt"
        path.write_bytes(data)
        done, _ = copy(path, *words, env=env)
        assert done.returncode == 1, (done.returncode, done.stderr)
        return done.stderr.strip().replace(str(path), "bad.pt")

    return run


def saved(value, **options):
    out = io.BytesIO()
    torch.save(value, out, **options)
    return out.getvalue()


def with_pickle(tmp_path, data):
    (tmp_path / "good.pt").write_bytes(saved({"a": torch.ones(2)}))
    return rewrite(tmp_path / "good.pt", {"data.pkl": data})


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


START = '[cohort] load: cannot read "bad.pt"\n  caused by: '
REFUSED = ", which plain values and tensors do not need; it was not run"


@pytest.mark.parametrize("legacy", [False, True])
def test_pickles_that_would_run_code(error_of, tmp_path, legacy):
    mark = tmp_path / "ran"
    cases = {"posix.system": Calls(os.system, f"touch {mark}"), "builtins.eval": Calls(eval, f"open('{mark}', 'w')"),
             "builtins.getattr": Calls(getattr, "x", "y"),
             "shutil.rmtree": Calls(shutil.rmtree, str(mark))}
    for name, value in cases.items():
        refused = name.replace("builtins.", "__builtin__.")
        assert error_of(saved({"x": value}, _use_new_zipfile_serialization=not legacy)) == START + "it refers to " + refused + REFUSED
    assert not mark.exists()


@pytest.mark.tier_all
def test_what_has_no_place_in_cpp_is_named(error_of):
    texts = {
        "a sparse tensor; save its indices() and values() instead": torch.eye(2).to_sparse(),
        "a quantized tensor; save its int_repr(), scale and zero point instead": torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
        "a NumPy array; save torch.from_numpy(array) instead": np.ones(2),
        "a tensor on the meta device, which has no data": torch.ones(2, device="meta"),
    }
    for text, value in texts.items():
        assert error_of(saved({"x": value})) == START + "it holds " + text
    assert error_of(saved({"x": {1, 2}})).startswith(START + "it refers to __builtin__.set, ")
    assert error_of(saved({"x": Calls(argparse.Namespace, 1)})) == START + "argparse.Namespace is called with other arguments than Python writes"
    assert error_of(saved(torch.nn.Linear(1, 1))) == START + "it refers to torch.nn.modules.linear.Linear" + REFUSED
    assert error_of(saved({(1, 2): 3})).startswith(START + "cannot unpickle: a dict has a key of type tuple; ")
    assert error_of(saved({"x": torch.ones(2).untyped_storage()})) == (
        START + "it has a storage by itself, which C++ cannot represent\n  hint: save the tensor instead of its storage")


def test_other_files(error_of, tmp_path):
    assert error_of(b"") == START + "it is neither a zip file nor begins with the magic number of PyTorch's older files"
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), tmp_path / "script.pt")
    assert error_of((tmp_path / "script.pt").read_bytes()) == (
        START + "it is a TorchScript archive, as torch.jit.save and C++'s torch::save write\n"
        "  hint: read it with torch::load or torch::jit::load")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x/y", b"1")
    assert error_of(out.getvalue()) == START + "it is a zip file, but not one of torch.save: it has no record \"data.pkl\""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", b"1" * 1000)
    assert error_of(out.getvalue()) == (
        START + '"bad.pt": its record "x/data.pkl" is compressed; those of PyTorch\'s files are not\n'
        "  hint: unpack it and pack it again without compression: zip -0 -r FILE FOLDER")
    safetensors = struct.pack("<Q", 2) + b"{}"
    assert error_of(safetensors) == (START + "it is not a file of torch.save\n  hint: read it with load_file: "
                                     "it looks like a safetensors file")


@pytest.mark.tier_all
def test_damaged_files(error_of, tmp_path):
    good = saved({"a": torch.arange(64.0)})
    for size in (4, 30, 100, len(good) // 2, len(good) - 1):
        assert error_of(good[:size]).startswith(START), size
    assert error_of(good[:-1]) == (START + f'"bad.pt" has no end record of a zip file in its {len(good) - 1} bytes\n'
                                   "  hint: check that the file is complete, and that it is a zip file")
    legacy = saved({"a": torch.arange(64.0)}, _use_new_zipfile_serialization=False)
    for size in (20, len(legacy) // 2, len(legacy) - 1):
        assert error_of(legacy[:size]).startswith(START), size
    # One bit of the data; PyTorch does not look, and neither do we unless asked to.
    at = good.index(struct.pack("<4f", 8, 9, 10, 11))
    flipped = good[:at] + bytes([good[at] ^ 1]) + good[at + 1:]
    damaged = ('the bytes of its record "data/0" do not have the checksum that was written for them\n'
               "  hint: the file is damaged; take another copy")
    assert error_of(flipped, "check") == '[cohort] load: "bad.pt": ' + damaged
    pickle_at = good.index(b"torch._utils")
    assert error_of(good[:pickle_at] + b"x" + good[pickle_at + 1:]) == (
        START + '"bad.pt": the bytes of its record "archive/data.pkl" do not have the checksum that was written for them\n'
        "  hint: the file is damaged; take another copy")


@pytest.mark.tier_all
def test_records_that_do_not_fit(error_of, tmp_path):
    (tmp_path / "good.pt").write_bytes(saved({"a": torch.ones(2)}))
    path = tmp_path / "good.pt"
    assert error_of(rewrite(path, {"data/0": b"1234"})) == START + 'its record "data/0" has 4 bytes, but its tensors need 8'
    assert error_of(rewrite(path, drop=["data/0"])) == START + 'it has no record "data/0" for a tensor'
    assert error_of(rewrite(path, {"byteorder": b"middle"})).endswith('expected the byte order "little" or "big", but found another text')
    with pytest.warns(UserWarning):
        twice = rewrite(path, add={"data/0": b"12345678"})
    assert error_of(twice).endswith('expected names that come once, but found "archive/data/0" twice')
    assert error_of(rewrite(path, add={"../../etc/passwd": b""})).endswith(
        'expected names inside the archive, but found "archive/../../etc/passwd"')


@pytest.mark.tier_all
def test_tensors_that_do_not_fit_their_storage(error_of, tmp_path):
    def tensor(numel, offset, size, stride, *rest):
        class Storage:
            pass

        class Pickler(pickle.Pickler):
            def persistent_id(self, value):
                return ("storage", torch.FloatStorage, "0", "cpu", numel) if isinstance(value, Storage) else None

        out = io.BytesIO()
        Pickler(out, 2).dump(Calls(torch._utils._rebuild_tensor_v2, Storage(), offset, size, stride, False, collections.OrderedDict(), *rest))
        return with_pickle(tmp_path, out.getvalue())

    outside = START + 'a tensor does not lie in its storage "0", which has 2 elements'
    odd = START + "torch._utils._rebuild_tensor_v2 is called with other arguments than Python writes"
    assert error_of(tensor(2, 0, (3,), (1,))) == outside
    assert error_of(tensor(2, 1, (2,), (1,))) == outside
    assert error_of(tensor(2, 0, (2, 2), (1, 1))) == outside
    assert error_of(tensor(2, 0, (2**62, 2**62), (0, 0))) == outside
    assert error_of(tensor(2, 0, (2,), (2**62,))) == outside
    assert error_of(tensor(2, -1, (1,), (1,))) == odd
    assert error_of(tensor(2, 0, (1,), (-1,))) == odd
    assert error_of(tensor(2, 0, (1, 1), (1,))) == odd
    assert error_of(tensor(2**61, 0, (1,), (1,))) == START + "a tensor's storage has another id than Python writes"


def test_small_pickles_that_would_become_large(error_of, copy, tmp_path):
    laughs = []
    for _ in range(60):
        laughs = [laughs, laughs]
    (tmp_path / "laughs.pt").write_bytes(with_pickle(tmp_path, pickle.dumps(laughs, 2)))
    done, to = copy(tmp_path / "laughs.pt")
    assert done.returncode == 0, done.stderr
    assert os.path.getsize(to) < 10_000
    deep = b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b"."
    assert error_of(with_pickle(tmp_path, deep)).startswith(START + "cannot unpickle: nested deeper than 200 (byte ")
    huge = b"\x80\x02X" + struct.pack("<I", 2**32 - 1) + b"x."
    assert error_of(with_pickle(tmp_path, huge)) == START + "cannot unpickle: it needs 4294967295 more bytes and has 2 (byte 2 of 9)"


def test_devices_that_are_not_there(copy, error_of, tmp_path):
    (tmp_path / "good.pt").write_bytes(saved({"a": torch.ones(2)}))
    pickled = zipfile.ZipFile(tmp_path / "good.pt").read("archive/data.pkl").replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:1")
    data = rewrite(tmp_path / "good.pt", {"data.pkl": pickled})
    assert error_of(data) == ('[cohort] load: tensors of "bad.pt" go to the device cuda:1, but this process has no cuda device\n'
                              "  hint: give map_location = c10::Device(c10::kCPU) to have them on the CPU")
    (tmp_path / "cuda.pt").write_bytes(data)
    done, to = copy(tmp_path / "cuda.pt", "cpu")
    assert done.returncode == 0, done.stderr
    same(torch.load(to, weights_only=True), {"a": torch.ones(2)})


@pytest.mark.tier_all  # it needs the simulated devices
def test_devices_that_are_there(copy, tmp_path):
    """On simulated devices: where the file says, or where a table sends it; a job's ranks are warned."""
    torch.save({"a": torch.arange(3.0)}, tmp_path / "cpu.pt")
    pickled = zipfile.ZipFile(tmp_path / "cpu.pt").read("cpu/data.pkl").replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    path = tmp_path / "cuda.pt"
    path.write_bytes(rewrite(tmp_path / "cpu.pt", {"data.pkl": pickled}))
    env = {"LD_PRELOAD": str(BUILD / "lib/libcohort_sim_preload.so"), "COHORT_TEST_SIM": "cuda,late-default", "LOCAL_WORLD_SIZE": "2"}
    for word, device in (("", b"cuda:0"), ("cuda1", b"cuda:1")):
        done, to = copy(path, word, env=env)
        assert done.returncode == 0, done.stderr
        assert device in zipfile.ZipFile(to).read("copy/data.pkl")
        same(torch.load(to, map_location="cpu", weights_only=True), {"a": torch.arange(3.0)})
        warning = (f'[cohort] load: "{path}" was saved from cuda:0, and each of the 2 ranks of this host loads it there\n'
                   "  hint: give map_location, such as c10::Device(type, local_rank)")
        assert (warning in done.stderr) == (word == "")


def test_records_beyond_4_gib(copy, tmp_path):
    """A sparse file: a storage of more than 4 GiB, and a record behind it."""
    path = tmp_path / "large.pt"
    numel = 2**32 + 64
    with torch.serialization.skip_data():
        torch.save({"large": torch.empty(numel, dtype=torch.uint8), "small": torch.empty(3)}, path)
    where = torch.load(path, map_location="meta", weights_only=True)["small"].untyped_storage()._checkpoint_offset
    with open(path, "r+b") as file:
        file.seek(where)
        file.write(struct.pack("<3f", 1, 2, 3))
    done, to = copy(path, "mmap", "small")
    assert done.returncode == 0, done.stderr
    assert torch.load(to, weights_only=True).tolist() == [1, 2, 3]
