"""Objects between C++ and Python ranks, and the pickles they travel as."""
import array
import collections
import os
import pathlib
import pickle
import random
import struct
import subprocess

import pytest
import torch

from harness import BUILD, run_ranks

pytestmark = pytest.mark.tier_all  # ctest has the same calls between ranks of C++

PYTHON_RANK = pathlib.Path(__file__).with_name("object_python_rank.py")


@pytest.mark.parametrize("backend, order", [
    ("gloo", ["python", "cpp"]),
    ("gloo", ["cpp", "python"]),
    ("gloo", ["cpp", "python", "cpp"]),
    ("gloo", ["cpp", "cpp"]),
    ("cohort", ["python", "cpp"]),
    ("cohort", ["cpp", "python", "cpp"]),
])
def test_objects_between_cpp_and_python(programs, python, backend, order):
    started = {"cpp": [programs / "object_rank", backend], "python": [python, PYTHON_RANK, backend]}
    environment = {"PYTHONPATH": str(BUILD / "python")}
    for rank, (code, out, err) in enumerate(run_ranks([started[kind] for kind in order], environment)):
        assert code == 0, f"rank {rank}, {order[rank]}:\n{out}{err}"


def echo(programs, folder, pickles):
    """What C++ makes of each pickle, read by Python again."""
    source, target = folder / "in", folder / "out"
    source.write_bytes(b"".join(struct.pack("<Q", len(data)) + data for data in pickles))
    subprocess.run([programs / "pickle_echo", source, target], check=True, timeout=300)
    data, answers = target.read_bytes(), []
    while data:
        length = struct.unpack("<Q", data[:8])[0]
        answers.append(pickle.loads(data[8:8 + length]))
        data = data[8 + length:]
    assert len(answers) == len(pickles)
    return answers


def random_value(draw, depth=0):
    leaf = [lambda: None, lambda: draw.random() < 0.5, lambda: draw.randint(-2 ** 63, 2 ** 63 - 1),
            lambda: draw.randint(-300, 300), lambda: draw.choice([0, 255, 256, 65535, 65536, 2 ** 31, -2 ** 31, -2 ** 31 - 1]),
            lambda: draw.choice([0.0, -0.0, 1e300, float("inf"), draw.gauss(0, 1)]),
            lambda: complex(draw.random(), -1), lambda: "".join(draw.choice("aé\\u\n😀\0\x1a\r'\"") for _ in range(draw.randint(0, 300))),
            lambda: draw.randbytes(draw.choice([0, 1, 255, 256, 70000]))]
    nested = [lambda: [random_value(draw, depth + 1) for _ in range(draw.choice([0, 1, 3, 5]))],
              lambda: tuple(random_value(draw, depth + 1) for _ in range(draw.randint(0, 5))),
              lambda: {draw.choice(["k", 1.5, 7, "l", -2 ** 40]): random_value(draw, depth + 1) for _ in range(3)}]
    return draw.choice(leaf if depth > 3 else leaf + 3 * nested)()


def test_every_plain_value_returns_equal(programs, tmp_path):
    draw = random.Random(4)
    shared = [1, "shared"]
    values = [random_value(draw) for _ in range(200)]
    values += [list(range(2500)), {i: str(i) for i in range(2500)}, ["a" * 70000] * 3, [shared, shared, (shared,)], (), [[]], {},
               2 ** 63 - 1, -2 ** 63]
    pickles = [pickle.dumps(value, protocol) for value in values for protocol in range(6)]
    answers = echo(programs, tmp_path, pickles)
    for number, answer in enumerate(answers):
        wanted = values[number // 6]
        assert repr(answer) == repr(wanted), f"protocol {number % 6}"


def test_relatives_of_plain_values_become_plain(programs, tmp_path):
    state = torch.nn.Linear(2, 1).state_dict()
    pairs = [(bytearray(b"ab\xff"), b"ab\xff"), (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}), (float("nan"), "nan")]
    for protocol in range(6):
        answers = echo(programs, tmp_path, [pickle.dumps(value, protocol) for value, _ in pairs] + [pickle.dumps(state, protocol)])
        assert answers[:2] == [plain for _, plain in pairs[:2]] and str(answers[2]) == "nan"
        assert list(answers[3]) == list(state) and all(torch.equal(answers[3][name], state[name]) for name in state)


@pytest.mark.parametrize("tensor", [
    torch.arange(12.).view(3, 4)[1:, 1:3], torch.tensor(3), torch.zeros(0, 4), torch.ones(1).expand(5, 1000),
    torch.randn(2, 3, dtype=torch.cdouble).conj(), torch.nn.Parameter(torch.ones(2)), torch.ones(3, requires_grad=True),
], ids=["slice", "scalar", "empty", "expanded", "conjugate", "parameter", "requires_grad"])
def test_tensors_return_equal(programs, tmp_path, tensor):
    for answer in echo(programs, tmp_path, [pickle.dumps(tensor.resolve_conj() if tensor.is_conj() else tensor, p) for p in range(2, 6)]):
        assert answer.dtype == tensor.dtype and torch.equal(answer, tensor) and answer.requires_grad == tensor.requires_grad


class Own:
    pass


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def looped():
    value = [1]
    value.append({"self": value})
    return value


PLAIN = "None, bool, int, float, complex, str, bytes, list, tuple, dict and tensors"
REFUSED = {
    "function": (os.system, "it refers to posix.system; only " + PLAIN + " can be exchanged with C++ ranks"),
    "object": (Own(), f"it refers to {__name__}.Own; only {PLAIN} can be exchanged with C++ ranks"),
    "set": ({1}, "operation 0x8f is a set; send a list (byte 11 of 18)"),
    "big int": (2 ** 63, "an int needs more than 64 bits (byte 11 of 23)"),
    "surrogate": ("\ud800", "a str is not valid UTF-8 (byte 2 of 11)"),
    "tuple key": ({(1, 2): 3}, "a dict has a key of type tuple; str, int, float, complex and bool are possible (byte 21 of 23)"),
    "bare builtin": ([complex], "a Python function or storage stands as a value"),
    "array": (array.array("i", [1]), "it refers to array._array_reconstructor; only " + PLAIN + " can be exchanged with C++ ranks"),
    "sparse": (torch.eye(2).to_sparse(), "it refers to torch._utils._rebuild_sparse_tensor, which makes a tensor or object of a kind "
               "that C++ ranks do not exchange as objects; send tensors with broadcast or send"),
    "device": (torch.device("cpu"), "it refers to torch.device, which makes a tensor or object of a kind "
               "that C++ ranks do not exchange as objects; send tensors with broadcast or send"),
    "deep": (nested(200), "nested deeper than 200"),
    "itself": (looped(), "a list or dict contains itself"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_has_no_plain_form_message(programs, tmp_path, name):
    value, text = REFUSED[name]
    data = pickle.dumps(value, 4) if name != "surrogate" else b"\x80\x04X\x03\0\0\0\xed\xa0\x80."
    answer, = echo(programs, tmp_path, [data])
    assert answer.startswith("error: [cohort] cannot unpickle: " + text), answer
    if "(byte" in text or "refers" in text:
        assert answer == "error: [cohort] cannot unpickle: " + text


def test_nothing_is_executed(programs, tmp_path):
    trap = tmp_path / "trap"
    data = b"cposix\nsystem\n(V" + f"touch {trap}".encode() + b"\ntR."
    answer, = echo(programs, tmp_path, [data])
    assert answer.startswith("error: [cohort] cannot unpickle: it refers to posix.system; only ")
    assert not trap.exists()
