"""Sharded checkpoints beside Python: Hugging Face's layout read by the safetensors package, PyTorch's DCP folders both ways, one
file of torch.save out of each and back."""
import json
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
import torch.distributed.checkpoint as dcp
from harness import run_ranks
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp

from sharded_python_rank import KNOWN_VALUES, in_order, known_tensors, same

PYTHON_RANK = pathlib.Path(__file__).with_name("sharded_python_rank.py")

warnings.filterwarnings("ignore", message=".*torch.distributed is disabled.*")


@pytest.fixture
def tool(programs):
    def run(*arguments):
        command = [programs / "sharded_tool", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture
def ranks(programs):
    def run(number, *arguments):
        results = run_ranks([[programs / "sharded_tool", *map(str, arguments)]] * number)
        for code, _, errors in results:
            assert code == 0, errors
        return [output for _, output, _ in results]

    return run


def test_folders_are_hugging_faces(ranks, tmp_path):
    ranks(2, "save", tmp_path / "run")
    index = json.loads((tmp_path / "run/model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    loaded = {}
    for file in sorted(set(index["weight_map"].values())):
        tensors = load_file(tmp_path / "run" / file)
        assert all(index["weight_map"][name] == file for name in tensors)
        with safe_open(tmp_path / "run" / file, "pt") as opened:
            assert opened.metadata() == {"format": "pt"}
        loaded.update(tensors)
    same(dict(sorted(loaded.items())), dict(sorted(known_tensors().items())))
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in loaded.values())


def test_their_folders_are_ours(ranks, tmp_path):
    """Without values and checksums: every key of the state but those."""
    names = list(known_tensors())
    for number, part in enumerate([names[:2], names[2:]]):
        save_file({name: known_tensors()[name] for name in part}, tmp_path / f"part-{number}.safetensors")
    weight_map = {name: f"part-{int(i >= 2)}.safetensors" for i, name in enumerate(names)}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    with pytest.raises(AssertionError, match="Missing key in checkpoint state_dict: optim.step."):
        ranks(1, "load", tmp_path)


def on_two_python_ranks(what, folder):
    for code, _, errors in run_ranks([[sys.executable, PYTHON_RANK, what, folder]] * 2):
        assert code == 0, errors


@pytest.fixture(scope="module")
def pythons_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("python") / "dcp"
    on_two_python_ranks("save", folder)
    return folder


@pytest.mark.parametrize("world_size", [1, 3])
def test_pythons_dcp_folders_load(ranks, pythons_folder, world_size):
    for output in ranks(world_size, "load", pythons_folder):
        assert output == "loaded\n"


@pytest.mark.tier_all
def test_our_dcp_folders_load_in_python(ranks, tool, tmp_path):
    ranks(2, "save", tmp_path / "run")
    done = tool("dcp", tmp_path / "run", tmp_path / "dcp")
    assert done.returncode == 0, done.stderr
    state = in_order(dict(known_tensors(), **KNOWN_VALUES))
    dcp.load(state, checkpoint_id=tmp_path / "dcp", no_dist=True)
    same(state, dict(known_tensors(), **KNOWN_VALUES))
    on_two_python_ranks("load", tmp_path / "dcp")
    ranks(2, "load", tmp_path / "dcp")


def nested_state():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    storage = torch.arange(12.0)
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3, "name": "é", "none": None,
            "views": [storage.view(3, 4).t(), storage[2:5], torch.tensor([True, False])], "tuple": (1, [2.5, {"a": b"\0"}]),
            "half": torch.randn(3).to(torch.bfloat16), "empty": torch.zeros(0, 3), "complex": 1 + 2j}


def flat(state, prefix=""):
    items = state.items() if isinstance(state, dict) else enumerate(state)
    result = {}
    for key, value in items:
        has_parts = isinstance(value, dict) or (isinstance(value, list) and any(isinstance(x, torch.Tensor) for x in value))
        result.update(flat(value, f"{prefix}{key}.") if has_parts else {f"{prefix}{key}": value})
    return result


def test_torch_save_to_dcp_as_python(tool, tmp_path):
    torch.manual_seed(0)
    torch.save(nested_state(), tmp_path / "run.pt")
    done = tool("from_pt", tmp_path / "run.pt", tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    torch_save_to_dcp(tmp_path / "run.pt", tmp_path / "python")
    ours, theirs = (dcp.FileSystemReader(tmp_path / side).read_metadata() for side in ("ours", "python"))
    assert ours.state_dict_metadata.keys() == theirs.state_dict_metadata.keys()
    assert ours.planner_data == theirs.planner_data
    for key, entry in theirs.state_dict_metadata.items():
        assert type(ours.state_dict_metadata[key]) is type(entry), key
        assert getattr(ours.state_dict_metadata[key], "size", None) == getattr(entry, "size", None), key
    dcp_to_torch_save(tmp_path / "ours", tmp_path / "back.pt")
    back = torch.load(tmp_path / "back.pt", weights_only=False)
    same(flat(back), flat(torch.load(tmp_path / "run.pt")))


def test_dcp_to_torch_save_as_python(tool, tmp_path):
    torch.manual_seed(0)
    dcp.save(nested_state(), checkpoint_id=tmp_path / "dcp", no_dist=True)
    done = tool("to_pt", tmp_path / "dcp", tmp_path / "ours.pt")
    assert done.returncode == 0, done.stderr
    dcp_to_torch_save(tmp_path / "dcp", tmp_path / "python.pt")
    same(flat(torch.load(tmp_path / "ours.pt", weights_only=True)), flat(torch.load(tmp_path / "python.pt", weights_only=False)))


def test_one_file_of_each_kind(ranks, tool, tmp_path):
    ranks(2, "save", tmp_path / "run")
    for name in ["one.safetensors", "one.pt"]:
        done = tool("consolidate", tmp_path / "run", tmp_path / name)
        assert done.returncode == 0, done.stderr
        ranks(2, "load", tmp_path / name)
    same(dict(sorted(load_file(tmp_path / "one.safetensors").items())), dict(sorted(known_tensors().items())))
    loaded = torch.load(tmp_path / "one.pt", weights_only=True)
    same(dict(sorted(loaded.items())), dict(sorted({**known_tensors(), **KNOWN_VALUES}.items())))


def test_what_would_run_code_is_refused_message(tool, tmp_path):
    (tmp_path / ".metadata").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    done = tool("consolidate", tmp_path, tmp_path / "x.pt")
    assert done.returncode == 1
    assert "it refers to os.system, which torch.distributed.checkpoint does not write; it was not run" in done.stderr
    assert not (tmp_path / "x.pt").exists()


def test_a_mapped_file_has_the_same_bytes(tool, tmp_path):
    tensors = {"odd": torch.arange(7, dtype=torch.uint8), "float": torch.randn(100, 3), "bool": torch.tensor([True, False]),
               "empty": torch.zeros(0, 2), "scalar": torch.tensor(2.5, dtype=torch.float64)}
    save_file(tensors, tmp_path / "a.safetensors")
    done = tool("mapped", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert done.returncode == 0, done.stderr
    same(dict(sorted(load_file(tmp_path / "b.safetensors").items())), dict(sorted(tensors.items())))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
