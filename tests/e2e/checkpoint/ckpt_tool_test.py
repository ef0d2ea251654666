"""cohort ckpt: files of tensors that Python has written, by full text; what it writes, read by Python."""
import json
import os
import shutil
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from harness import BUILD

COHORT = BUILD / "bin" / "cohort"


@pytest.fixture
def ckpt(tmp_path):
    """Runs the tool in the test's folder; returns the finished process."""

    def run(*arguments, program=COHORT, env=None):
        return subprocess.run([program, "ckpt", *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=env)

    return run


def output(done, code=0):
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def error(done, code=1):
    assert (done.returncode, done.stdout) == (code, "")
    return done.stderr


@pytest.fixture
def files(tmp_path):
    """run.pt: a training run; a.safetensors: weights."""
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optim": optimizer.state_dict(), "epoch": 3, "name": "first \"run\"",
                "loss": 0.5, "done": False, "best": None, "shape": (1, 2)}, tmp_path / "run.pt")
    save_file({"weight": torch.tensor([[1.0, -2, 3]]), "ids": torch.tensor([4, 5]), "half": torch.tensor([0.5, 1.5]).bfloat16()},
              tmp_path / "a.safetensors", metadata={"format": "pt"})


def test_ls(ckpt, files):
    assert output(ckpt("ls", "run.pt", "a.safetensors")) == """\
run.pt: PyTorch zip

name                           dtype    shape   size
model.weight                   float32  [1, 2]  8 B
model.bias                     float32  [1]     4 B
optim.state.0.momentum_buffer  float32  [1, 2]  8 B
optim.state.1.momentum_buffer  float32  [1]     4 B

4 tensors, 6 elements, 24 B; 18 other values (see show)

a.safetensors: safetensors

name    dtype     shape   size
ids     int64     [2]     16 B
weight  float32   [1, 3]  12 B
half    bfloat16  [2]     4 B

3 tensors, 7 elements, 32 B
"""


def test_ls_json(ckpt, files):
    assert json.loads(output(ckpt("ls", "a.safetensors", "--json"))) == {
        "path": "a.safetensors", "format": "safetensors", "num_bytes": 32, "values": [], "metadata": {"format": "pt"},
        "tensors": [{"name": "ids", "dtype": "int64", "shape": [2], "num_bytes": 16},
                    {"name": "weight", "dtype": "float32", "shape": [1, 3], "num_bytes": 12},
                    {"name": "half", "dtype": "bfloat16", "shape": [2], "num_bytes": 4}]}


def test_show(ckpt, files):
    assert output(ckpt("show", "a.safetensors", "weight", "ids", "half", "--elements", "2")) == """\
weight: float32 [1, 3]
  min -2, max 3, mean 0.666667, norm 3.74166
  [1, -2, ...]
ids: int64 [2]
  min 4, max 5, mean 4.5, norm 6.40312
  [4, 5]
half: bfloat16 [2]
  min 0.5, max 1.5, mean 1, norm 1.58114
  [0.5, 1.5]
"""
    shown = output(ckpt("show", "run.pt")).splitlines()
    assert shown[0] == "run.pt: PyTorch zip, 4 tensors"
    assert shown[-7:] == ["epoch = 3", 'name = "first \\"run\\""', "loss = 0.5", "done = False", "best = None", "shape.0 = 1", "shape.1 = 2"]
    assert output(ckpt("show", "run.pt", "optim.param_groups.0.lr")) == "optim.param_groups.0.lr = 0.1\n"


def test_show_json(ckpt, tmp_path):
    save_file({"w": torch.tensor([1.0, float("nan"), float("inf"), -1.0])}, tmp_path / "w.safetensors")
    assert json.loads(output(ckpt("show", "w.safetensors", "w", "--elements", "4", "--json"))) == [
        {"name": "w", "dtype": "float32", "shape": [4], "min": -1.0, "max": 1.0, "mean": 0.0, "norm": 2 ** 0.5, "num_nan": 1,
         "num_infinite": 1, "elements": [1.0, None, None, -1.0]}]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
                                   torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.int64, torch.int32,
                                   torch.int16, torch.int8, torch.uint8, torch.bool])
def test_statistics_are_pytorchs(ckpt, tmp_path, dtype):
    torch.manual_seed(1)
    tensor = (3 * torch.randn(300, 7)).to(dtype)
    save_file({"w": tensor}, tmp_path / "w.safetensors")
    shown = json.loads(output(ckpt("show", "w.safetensors", "w", "--json")))[0]
    exact = tensor.to(torch.float64)
    assert (shown["min"], shown["max"]) == (exact.min().item(), exact.max().item())
    assert shown["mean"] == pytest.approx(exact.mean().item(), rel=1e-12, abs=1e-12)
    assert shown["norm"] == pytest.approx(exact.norm().item(), rel=1e-12)


def test_verify(ckpt, files, tmp_path):
    assert output(ckpt("verify", "run.pt", "a.safetensors")) == (
        "run.pt: whole: 4 tensors, 24 B, 24 B compared with checksums\n"
        "a.safetensors: whole: 3 tensors, 32 B, 0 B compared with checksums\n")
    data = bytearray((tmp_path / "run.pt").read_bytes())
    weight = torch.load(tmp_path / "run.pt")["model"]["weight"].numpy().tobytes()
    data[data.index(weight)] ^= 1
    (tmp_path / "run.pt").write_bytes(data)
    done = ckpt("verify", "run.pt", "a.safetensors")
    assert done.returncode == 1
    assert done.stdout.startswith("run.pt: damaged: ")
    assert done.stdout.endswith("a.safetensors: whole: 3 tensors, 32 B, 0 B compared with checksums\n")
    report = json.loads(ckpt("verify", "run.pt", "a.safetensors", "--json").stdout)
    assert [item["whole"] for item in report] == [False, True]


def test_verify_of_a_folder_finds_every_changed_byte_of_data(ckpt, files, tmp_path):
    output(ckpt("convert", "run.pt", "folder"))
    assert output(ckpt("verify", "folder")) == "folder: whole: 4 tensors, 24 B, 24 B compared with checksums\n"
    [shard] = (tmp_path / "folder").glob("*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    done = ckpt("verify", "folder")
    assert done.returncode == 1
    assert done.stdout.startswith("folder: damaged: ")


def test_diff(ckpt, tmp_path):
    a = {"same": torch.ones(2), "mine": torch.ones(1), "less": torch.zeros(4), "shape": torch.ones(2, 3), "type": torch.ones(2),
         "step": 3, "lr": 0.5}
    b = {"same": torch.ones(2), "yours": torch.ones(1), "less": torch.tensor([0, 0.25, 0, -0.5]), "shape": torch.ones(3, 2),
         "type": torch.ones(2).half(), "step": 3, "lr": 0.25}
    torch.save(a, tmp_path / "a.pt")
    torch.save(b, tmp_path / "b.pt")
    assert output(ckpt("diff", "a.pt", "b.pt"), 1) == """\
mine: only in a.pt
yours: only in b.pt
less: 2 of 4 elements differ, by at most 0.5
shape: shape [2, 3] and [3, 2]
type: float32 and float16; 0 of 2 elements differ, by at most 0
lr: 0.5 and 0.25
2 entries alike
"""
    assert output(ckpt("diff", "a.pt", "a.pt")) == "7 entries alike\n"
    assert json.loads(output(ckpt("diff", "a.pt", "b.pt", "--json"), 1))["only_in_second"] == ["yours"]
    save_file({"w": torch.tensor([1.0, 2.0])}, tmp_path / "a.safetensors")
    save_file({"w": torch.tensor([1.0, 2.25])}, tmp_path / "b.safetensors")
    assert output(ckpt("diff", "a.safetensors", "b.safetensors", "--tolerance", "0.25")) == "1 entry alike\n"
    assert output(ckpt("diff", "a.safetensors", "b.safetensors", "--tolerance", "0.2"), 1).startswith("w: 1 of 2")
    assert error(ckpt("diff", "a.pt", "none.pt"), 2) == '[cohort] error: cannot open "none.pt": No such file or directory (ENOENT)\n'


def test_convert(ckpt, files, tmp_path):
    assert output(ckpt("convert", "run.pt", "folder")) == "folder: 4 tensors\n"
    assert output(ckpt("convert", "run.pt", "run.safetensors")) == "run.safetensors: 4 tensors\n"
    before = torch.load(tmp_path / "run.pt")
    for name in ["folder", "run.safetensors"]:
        assert output(ckpt("diff", "run.pt", name)) == "22 entries alike\n"
        assert output(ckpt("consolidate", name, "back.pt", "--force")) == "back.pt: 4 tensors\n"
        after = torch.load(tmp_path / "back.pt", weights_only=True)
        assert torch.equal(before["model"]["weight"], after["model.weight"])
        assert torch.equal(before["optim"]["state"][0]["momentum_buffer"], after["optim.state.0.momentum_buffer"])
        assert (after["epoch"], after["name"], after["loss"], after["done"], after["best"]) == (3, 'first "run"', 0.5, False, None)
    assert load_file(tmp_path / "run.safetensors").keys() == {
        "model.weight", "model.bias", "optim.state.0.momentum_buffer", "optim.state.1.momentum_buffer"}
    assert output(ckpt("convert", "a.safetensors", "a.pt")) == "a.pt: 3 tensors\n"
    model, expected = torch.load(tmp_path / "a.pt", weights_only=True), load_file(tmp_path / "a.safetensors")
    assert model.keys() == expected.keys()
    assert all(torch.equal(model[name], expected[name]) and model[name].dtype == expected[name].dtype for name in expected)


def same(a, b):
    """Keys of dicts come back as texts, as through PyTorch's own format_utils."""
    if isinstance(a, dict):
        b = {str(key): value for key, value in b.items()}
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_convert_to_distributed_checkpoints_and_back(ckpt, files, tmp_path):
    """As torch.distributed.checkpoint.format_utils does."""
    assert output(ckpt("convert", "run.pt", "dcp", "--dcp")) == "dcp: 4 tensors\n"
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "python.pt")
    assert output(ckpt("consolidate", "dcp", "back.pt")) == "back.pt: 4 tensors\n"
    before = torch.load(tmp_path / "run.pt", weights_only=True)
    for name in ["python.pt", "back.pt"]:
        assert same(torch.load(tmp_path / name, weights_only=True), before), name
    assert output(ckpt("ls", "dcp")).startswith("dcp: torch.distributed.checkpoint\n\nname ")


def test_convert_replaces_nothing_unless_told(ckpt, files, tmp_path):
    before = (tmp_path / "a.safetensors").read_bytes()
    assert error(ckpt("convert", "run.pt", "a.safetensors")) == (
        '[cohort] error: "a.safetensors" exists already\n  hint: use --force to replace it\n')
    assert (tmp_path / "a.safetensors").read_bytes() == before
    assert ckpt("convert", "run.pt", "a.safetensors", "--force").returncode == 0
    assert error(ckpt("consolidate", "run.pt", "folder"), 2) == (
        '[cohort] error: consolidate writes one file, but "folder" is not the name of a .pt or .safetensors file\n'
        "  hint: give a name that ends in .pt or .safetensors\n")


def test_an_old_file_becomes_a_new_one(ckpt, files, tmp_path):
    before = torch.load(tmp_path / "run.pt")
    torch.save(before, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert output(ckpt("convert", "old.pth", "new.pt")) == "new.pt: 4 tensors\n"
    assert output(ckpt("ls", "new.pt")).startswith("new.pt: PyTorch zip\n")
    assert same(torch.load(tmp_path / "new.pt", weights_only=True), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_average(ckpt, tmp_path, dtype):
    torch.manual_seed(2)
    states = [{"w": (100 * torch.randn(50, 30)).to(dtype), "n": torch.tensor([i])} for i in range(3)]
    for i, state in enumerate(states):
        torch.save(state, tmp_path / f"{i}.pt")
    assert output(ckpt("average", "0.pt", "1.pt", "2.pt", "--out", "mean.safetensors")) == "mean.safetensors: 2 tensors\n"
    mean = load_file(tmp_path / "mean.safetensors")
    expected = ((states[0]["w"].double() + states[1]["w"].double() + states[2]["w"].double()) / 3).to(dtype)
    assert torch.equal(mean["w"], expected)
    assert mean["n"].tolist() == [2]


def test_average_of_what_does_not_fit(ckpt, tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "a.safetensors")
    save_file({"w": torch.ones(3)}, tmp_path / "b.safetensors")
    assert error(ckpt("average", "a.safetensors", "b.safetensors", "--out", "mean.pt")) == (
        '[cohort] error: "w" is float32 [2] in "a.safetensors", but float32 [3] in "b.safetensors"\n')
    assert not (tmp_path / "mean.pt").exists()


def test_wrong_usage(ckpt, files):
    hint = "  hint: run cohort ckpt --help for the commands, cohort ckpt COMMAND --help for its flags\n"
    for word, meant in {"lss": "ls", "info": "ls", "inspect": "ls", "list": "ls", "shwo": "show"}.items():
        expected = f'[cohort] error: "{word}" is not a command of cohort ckpt (did you mean "{meant}"?)\n{hint}'
        assert error(ckpt(word, "a.safetensors"), 2) == expected
        assert error(ckpt(word), 2) == expected
    assert error(ckpt("nonsense"), 2) == f'[cohort] error: "nonsense" is not a command of cohort ckpt\n{hint}'
    assert error(ckpt("ls", "a.safetensors", "--jsn"), 2) == (
        f'[cohort] error: unknown argument --jsn (did you mean "--json"?)\n{hint}')
    assert error(ckpt("ls"), 2) == f"[cohort] error: FILE is required\n{hint}"
    assert error(ckpt("show", "a.safetensors", "weihgt")) == (
        '[cohort] error: "a.safetensors" has no tensor or value "weihgt" (did you mean "weight"?)\n'
        "  hint: run cohort ckpt ls a.safetensors to list the tensors\n")
    help_text = output(ckpt("--help"))
    for command in ["ls", "show", "verify", "diff", "convert", "average", "consolidate"]:
        assert f"\n  {command} " in help_text
    assert "ckpt" in subprocess.run([COHORT, "--help"], capture_output=True, text=True, timeout=300).stdout


def test_without_the_program(ckpt, tmp_path):
    launcher = shutil.copy(COHORT, tmp_path / "cohort")
    assert error(ckpt("ls", "run.pt", program=launcher, env=dict(os.environ, PATH="/nowhere"))) == (
        "[cohort] error: cohort ckpt needs the program cohort-ckpt, which is neither beside cohort nor in PATH\n"
        "  hint: install both from one build of Cohort; a build without cohort/files has no cohort-ckpt\n")


def test_hostile_code_is_not_run(ckpt, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    torch.save({"w": Evil()}, tmp_path / "evil.pt")
    assert "posix.system" in error(ckpt("ls", "evil.pt"))
    assert not (tmp_path / "ran").exists()
