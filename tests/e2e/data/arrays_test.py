"""Files that NumPy, gzip and csv write are read by C++ as Python reads them, and NumPy reads what C++ writes."""
import csv
import gzip
import io
import itertools
import struct
import subprocess
import zipfile

import numpy
import pytest
import torch

pytestmark = pytest.mark.tier_all  # training does not need files of data sets

TYPES = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]
SHAPES = [(), (5,), (3, 4), (2, 3, 4), (0, 3), (4, 0), (1, 1, 1, 2)]


@pytest.fixture
def echo(programs):
    """Sends all requests to one C++ process and returns its answers."""

    def run(requests):
        text = "".join("\t".join(map(str, request)) + "\n" for request in requests)
        done = subprocess.run([programs / "array_echo"], input=text, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def array_of(dtype, shape):
    """Other bytes for each element, also in the higher ones."""
    rng = numpy.random.default_rng(len(shape))
    size = int(numpy.prod(shape))
    dtype = numpy.dtype(dtype)
    if dtype.kind in "ui":
        values = numpy.frombuffer(rng.bytes(size * dtype.itemsize), dtype.newbyteorder("<"))
    elif dtype.kind == "b":
        values = rng.integers(0, 2, size)
    else:
        values = rng.standard_normal(size) + (1j * rng.standard_normal(size) if dtype.kind == "c" else 0)
    return values.reshape(shape).astype(dtype)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_npy_of_every_type_shape_order_and_version(echo, tmp_path):
    requests, expected = [], []
    for dtype, shape, byte_order, order in itertools.product(TYPES, SHAPES, "<>", "CF"):
        array = numpy.asarray(array_of(numpy.dtype(dtype).newbyteorder(byte_order), shape), order=order)
        path = tmp_path / f"{len(requests)}.npy"
        with open(path, "wb") as file:
            numpy.lib.format.write_array(file, array, [(1, 0), (2, 0), (3, 0)][len(requests) % 3])
        requests.append(("npy", path, tmp_path / f"{len(requests)}.out.npy"))
        expected.append(array)
    assert echo(requests) == ["ok"] * len(requests)
    for (_, path, out), array in zip(requests, expected):
        found = numpy.load(out)
        assert same(found, numpy.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).reshape(array.shape)), path
        # What C++ writes is what NumPy would write.
        file = io.BytesIO()
        numpy.save(file, found)
        assert out.read_bytes() == file.getvalue(), path


@pytest.mark.parametrize("save", [numpy.savez, numpy.savez_compressed])
def test_npz(echo, tmp_path, save):
    arrays = {f"a{i}": array_of(dtype, (50, 3)) for i, dtype in enumerate(TYPES)}
    arrays |= {"large": array_of("f8", (300, 200)), "zeros": numpy.zeros((1000, 100)), "f": numpy.asfortranarray(array_of("i4", (7, 5)))}
    save(tmp_path / "a.npz", **arrays)
    assert echo([("npz", tmp_path / "a.npz", tmp_path)]) == ["ok"]
    assert sorted(path.stem for path in tmp_path.glob("*.npy")) == sorted(arrays)
    for name, array in arrays.items():
        assert same(numpy.load(tmp_path / f"{name}.npy"), numpy.ascontiguousarray(array)), name


def test_rows_of_npy(echo, tmp_path):
    rows = [4, 0, 4, 9]
    requests, expected = [], []
    for i, (dtype, order) in enumerate(itertools.product(["<f4", ">i8", "?", ">c16"], "CF")):
        array = numpy.asarray(array_of(dtype, (10, 3, 2)), order=order)
        numpy.save(tmp_path / f"{i}.npy", array)
        requests.append(("rows", tmp_path / f"{i}.npy", tmp_path / f"{i}.out.npy", *rows))
        expected.append(array[rows].astype(array.dtype.newbyteorder("<")))
    assert echo(requests) == ["ok"] * len(requests)
    for (_, path, out, *_), array in zip(requests, expected):
        assert same(numpy.load(out), numpy.ascontiguousarray(array)), path


def test_what_could_execute_code_is_refused(echo, tmp_path):
    numpy.save(tmp_path / "object.npy", numpy.array([{}, None], dtype=object))
    numpy.save(tmp_path / "fields.npy", numpy.zeros(2, [("a", "i4"), ("b", "f8")]))
    numpy.savez_compressed(tmp_path / "object.npz", numpy.array([{}], dtype=object))
    answers = echo([("npy", tmp_path / name, tmp_path / "out.npy") for name in ("object.npy", "fields.npy")]
                   + [("npz", tmp_path / "object.npz", tmp_path)])
    for answer, kind in zip(answers, ["Python objects", "structured types", "Python objects"], strict=True):
        assert f"({kind} are not read, and nothing in them is executed)" in answer
    assert not (tmp_path / "out.npy").exists()


def test_zip64_and_other_methods(echo, tmp_path):
    def archive(name, method):
        with zipfile.ZipFile(tmp_path / name, "w", method) as file, file.open("x.npy", "w", force_zip64=True) as member:
            numpy.lib.format.write_array(member, numpy.arange(5))

    archive("zip64.npz", zipfile.ZIP_DEFLATED)
    archive("bzip2.npz", zipfile.ZIP_BZIP2)
    answers = echo([("npz", tmp_path / name, tmp_path) for name in ("zip64.npz", "bzip2.npz")])
    assert answers == ["ok", f'[cohort] "{tmp_path}/bzip2.npz/x.npy" is packed by method 12 of zip, but only stored and deflated '
                             "arrays are read"]
    assert numpy.load(tmp_path / "x.npy").tolist() == [0, 1, 2, 3, 4]


def write_idx(path, array, opened=open):
    codes = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
    with opened(path, "wb") as file:
        file.write(struct.pack(">BBBB", 0, 0, codes[array.dtype.str[1:]], array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
                   + array.astype(array.dtype.newbyteorder(">")).tobytes())


@pytest.mark.parametrize("packed", [False, True])
def test_idx_and_mnist(echo, tmp_path, packed):
    opened, ending = (gzip.open, ".gz") if packed else (open, "")
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images, labels = array_of("u1", (20, 28, 28)), array_of("u1", (20,))
    write_idx(raw / f"train-images-idx3-ubyte{ending}", images, opened)
    write_idx(raw / f"train-labels-idx1-ubyte{ending}", labels, opened)
    requests, arrays = [("mnist", tmp_path, 1, tmp_path)], {dtype: array_of(dtype, (20, 3)) for dtype in ("i1", "i2", "i4", "f4", "f8")}
    for dtype, array in arrays.items():
        out = tmp_path / dtype
        out.mkdir()
        write_idx(out / "array", array, opened)
        requests.append(("idx", out / "array", raw / f"train-labels-idx1-ubyte{ending}", out))
    assert echo(requests) == ["ok"] * len(requests)
    assert same(numpy.load(tmp_path / "images.npy"), images[:, None])
    assert same(numpy.load(tmp_path / "labels.npy"), labels.astype("i8"))
    for dtype, array in arrays.items():
        assert same(numpy.load(tmp_path / dtype / "images.npy"), array), dtype


@pytest.mark.parametrize("dialect", ["excel", "unix"])
def test_csv_of_pythons_writer(echo, tmp_path, dialect):
    features, labels = array_of("f8", (500, 4)), array_of("i8", (500,))
    with open(tmp_path / "a.csv", "w", newline="") as file:
        writer = csv.writer(file, dialect)
        writer.writerow(["a", "the, \"label\"", "b", "c", "d\ne"])
        writer.writerows([row[0], label, *row[1:]] for row, label in zip(features.tolist(), labels.tolist()))
    assert echo([("csv", tmp_path / "a.csv", 'the, "label"', tmp_path)]) == ["ok"]
    assert same(numpy.load(tmp_path / "features.npy"), features)
    assert same(numpy.load(tmp_path / "labels.npy"), labels)


def test_token_files(echo, tmp_path):
    """As nanoGPT's np.memmap and llm.c's data loader read them."""
    short, long = array_of("u2", (1000,)), array_of("u4", (1000,))
    header = numpy.zeros(256, "<i4")
    files = {"raw.bin": (short.tobytes(), 0, short), "raw32.bin": (long.tobytes(), 2, long)}
    for name, magic, version, tokens in [("gpt2.bin", 20240520, 1, short), ("llama3.bin", 20240801, 7, long)]:
        header[:3] = magic, version, len(tokens)
        files[name] = header.tobytes() + tokens.tobytes(), 0, tokens
    requests, expected = [], []
    for name, (content, file_format, tokens) in files.items():
        (tmp_path / name).write_bytes(content)
        for length, stride in [(16, 0), (7, 3), (999, 1)]:
            out = tmp_path / str(len(requests))
            out.mkdir()
            requests.append(("tokens", tmp_path / name, length, stride, file_format, out))
            expected.append(torch.from_numpy(tokens.astype("i8")).unfold(0, length + 1, stride or length))
    assert echo(requests) == ["ok"] * len(requests)
    for request, windows in zip(requests, expected):
        assert numpy.load(request[-1] / "inputs.npy").tolist() == windows[:, :-1].tolist(), request
        assert numpy.load(request[-1] / "targets.npy").tolist() == windows[:, 1:].tolist(), request
