"""CIFAR-10 and CIFAR-100 in C++ hold what Python's pickle and NumPy read from the same files."""
import os
import pickle
import subprocess

import numpy as np
import pytest

from harness import BUILD

pytestmark = pytest.mark.tier_all  # training does not need files of data sets

SHAPE = [("labels", np.int64), ("pixels", np.uint8, 3072)]
SETS = {"cifar10": ("10", "labels", "label_names"), "cifar100": ("100", "fine_labels", "fine_label_names"),
        "cifar100-coarse": ("20", "coarse_labels", "coarse_label_names")}


@pytest.fixture
def made(tmp_path):
    def make(name, *flags):
        subprocess.run([BUILD / "bin" / "cohort-data", "make", name, "--root", tmp_path, "--samples", "333", *flags], check=True,
                       timeout=300)
        return tmp_path

    return make


@pytest.fixture
def read(programs, tmp_path):
    """What C++ reads: (labels, pixels, names of classes), or the text of its error."""

    def run(number, part):
        out = tmp_path / "out"
        done = subprocess.run([programs / "cifar_read", tmp_path, number, part, out], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            return done.stderr
        records = np.fromfile(out, dtype=np.dtype(SHAPE))
        return records["labels"].tolist(), records["pixels"], done.stdout.splitlines()

    return run


def pickled(folder, name):
    with open(folder / name, "rb") as file:
        return pickle.load(file, encoding="latin1")


def batches_of(root, set_name, part):
    if set_name == "cifar10":
        names = ["test_batch"] if part == "test" else [f"data_batch_{i}" for i in range(1, 6)]
        return root / "cifar-10-batches-py", names, "batches.meta"
    return root / "cifar-100-python", [part], "meta"


def expect_same(ours, labels, pixels, names):
    assert not isinstance(ours, str), ours
    assert ours[0] == labels
    assert np.array_equal(ours[1], pixels)
    assert ours[2] == names


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("set_name", list(SETS))
def test_pickled_batches_are_pythons(made, read, set_name, part):
    root = made(set_name.split("-")[0], "--python")
    number, labels_key, names_key = SETS[set_name]
    folder, files, meta = batches_of(root, set_name, part)
    entries = [pickled(folder, name) for name in files]
    expect_same(read(number, part), [label for entry in entries for label in entry[labels_key]],
                np.concatenate([entry["data"] for entry in entries]), pickled(folder, meta)[names_key])


@pytest.mark.parametrize("set_name", ["cifar10", "cifar100"])
def test_binary_version_holds_the_same(made, read, set_name):
    number = SETS[set_name][0]
    made(set_name, "--python")
    from_pickles = read(number, "train")
    root = made(set_name)
    folder = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary"}[set_name]
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if set_name == "cifar10" else ["train.bin"]
    label_bytes = 1 if set_name == "cifar10" else 2
    raw = np.concatenate([np.fromfile(root / folder / name, np.uint8) for name in names]).reshape(-1, 3072 + label_bytes)
    expect_same(read(number, "train"), raw[:, label_bytes - 1].tolist(), raw[:, label_bytes:], from_pickles[2])
    assert from_pickles[0] == raw[:, label_bytes - 1].tolist()
    assert np.array_equal(from_pickles[1], raw[:, label_bytes:])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", range(2, 6))
def test_batches_written_by_todays_numpy(made, read, protocol, order):
    """Fortran's order is one that NumPy writes when an array lay so in memory."""
    folder = made("cifar10", "--python") / "cifar-10-batches-py"
    entry = pickled(folder, "test_batch")
    entry["data"] = np.asarray(255 - entry["data"], order=order)
    with open(folder / "test_batch", "wb") as file:
        pickle.dump(entry, file, protocol)
    expect_same(read("10", "test"), entry["labels"], entry["data"], pickled(folder, "batches.meta")["label_names"])


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil",)


def test_pickles_that_are_something_else(made, read):
    folder = made("cifar10", "--python") / "cifar-10-batches-py"
    good = pickled(folder, "test_batch")
    path = folder / "test_batch"

    def error_of(entry, protocol=2):
        path.write_bytes(entry if isinstance(entry, bytes) else pickle.dumps(entry, protocol))
        return read("10", "test")

    start = f'[cohort] cannot read "{path}": '
    names = "; only numbers, texts, lists, dicts and NumPy's arrays are read\n"
    assert error_of(dict(good, data=Evil())) == start + "cannot unpickle: it refers to posix.system" + names
    assert error_of(dict(good, data=np.float64(1))).startswith(start + "cannot unpickle: it refers to numpy")
    assert error_of(dict(good, data=good["data"].astype(np.int16))) == \
        start + "cannot unpickle a NumPy array: its elements are of another type than uint8\n"
    assert error_of(dict(good, data=good["data"][:, :3000])) == \
        start + 'expected "data" as an array of 3072 bytes for each image, but found the shape [66, 3000]\n'
    assert error_of(dict(good, labels=good["labels"][1:])) == start + 'expected "labels" as a list of 66 int, but found 65 int\n'
    assert error_of(dict(good, labels=[10] * 66)) == start + 'expected "labels" below 10, but found 10\n'
    assert error_of(dict(good, labels=["cat"] * 66)) == start + 'expected "labels" as a list of 66 int, but found a list of something else\n'
    assert error_of({"labels": []}) == start + 'expected a dict with "data", but found one without it\n'
    assert error_of([1, 2]) == start + "expected a dict, but found a list\n"
    whole = pickle.dumps(good, 2)
    assert error_of(whole[:1000]).startswith(start + "cannot unpickle: ")
    assert not os.path.exists("evil")


def test_missing_files(made, read, tmp_path):
    assert read("10", "test") == (
        f'[cohort] neither "cifar-10-batches-bin" nor "cifar-10-batches-py" is in "{tmp_path}"\n'
        f"  hint: set .download = true, or run: cohort-data fetch cifar10 --root {tmp_path}\n"
        f"  hint: for a small synthetic dataset, run: cohort-data make cifar10 --root {tmp_path}\n")
    folder = made("cifar10") / "cifar-10-batches-bin"
    os.truncate(folder / "test_batch.bin", 66 * 3073 - 1)
    assert read("10", "test") == (f'[cohort] "{folder}/test_batch.bin", at byte {65 * 3073}: expected a record of 3073 bytes, '
                                  "but found only 3072\n")
    (folder / "test_batch.bin").unlink()
    assert "test_batch.bin" in read("10", "test")
    assert len(read("10", "train")[0]) == 333  # has files of its own
