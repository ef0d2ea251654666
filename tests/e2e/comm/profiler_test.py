"""The profiler's spans of our operations have PyTorch's names."""
import pathlib

from harness import run_ranks

PYTHON_RANK = pathlib.Path(__file__).with_name("profiler_python_rank.py")


def spans_of(folder, command):
    files = [folder / str(rank) for rank in range(2)]
    for rank, (code, out, err) in enumerate(run_ranks([[*command, file] for file in files])):
        assert code == 0, f"rank {rank}:\n{out}{err}"
    return [{name for name in file.read_text().splitlines() if name.startswith("gloo:")} for file in files]


def test_spans_have_pytorchs_names(tmp_path, programs, python):
    for name in ("ours", "pytorch"):
        (tmp_path / name).mkdir()
    ours = spans_of(tmp_path / "ours", [programs / "profiler_rank"])
    pytorchs = spans_of(tmp_path / "pytorch", [python, PYTHON_RANK])
    assert ours == pytorchs
    assert {"gloo:all_reduce", "gloo:broadcast", "gloo:send", "gloo:recv"} <= pytorchs[0]
