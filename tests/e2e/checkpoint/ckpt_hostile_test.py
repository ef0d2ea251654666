"""cohort ckpt on what is no file, what may not be read, and what is far larger than its file: errors by full text."""
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile

import pytest
import torch
from safetensors.torch import save_file

from harness import BUILD

CKPT = BUILD / "bin" / "cohort-ckpt"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user takes root")


@pytest.fixture
def folder():
    """Another user may reach it, unlike pytest's own."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="cohort-ckpt-test-"))
    path.chmod(0o777)
    shutil.copy(CKPT, path / "cohort-ckpt")
    save_file({"weight": torch.arange(4.0)}, path / "a.safetensors")
    (path / "a.safetensors").chmod(0o644)
    yield path
    for name in path.rglob("*"):
        if not name.is_symlink():
            name.chmod(0o700)
    shutil.rmtree(path)


def run(folder, *arguments, wrapper=(), timeout=120, **options):
    done = subprocess.run([*wrapper, folder / "cohort-ckpt", *arguments], cwd=folder, capture_output=True, text=True, timeout=timeout, **options)
    return done.returncode, done.stdout, done.stderr


# A pipe in the place of a file.


@pytest.mark.parametrize("name", ["model.safetensors.index.json", ".metadata", "model.safetensors", "weights.pt"])
def test_a_pipe_in_a_folder(folder, name):
    (folder / "run").mkdir()
    os.mkfifo(folder / "run" / name)
    code, output, error = run(folder, "ls", "run")
    assert (code, output) == (1, "")
    assert f'"run/{name}": it is not a regular file' in error


def test_a_pipe_as_a_manifest(folder):
    step = folder / "run" / "step-00000001"
    step.mkdir(parents=True)
    os.mkfifo(step / "manifest.json")
    code, output, error = run(folder, "verify", "run")
    assert (code, error) == (1, "")
    assert output.startswith("run/step-00000001: damaged: ")


# Folders without permission, for a user who is not root.

OTHER = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"]
DENIED = "Permission denied (EACCES)"


@needs_root
@pytest.mark.parametrize("mode", [0o000, 0o444], ids=oct)
def test_a_folder_that_may_not_be_entered(folder, mode):
    locked = folder / "locked"
    locked.mkdir()
    save_file({"weight": torch.arange(4.0)}, locked / "model.safetensors")
    locked.chmod(mode)
    # One that may be listed has one file of tensors.
    look = f'[cohort] error: cannot {"open" if mode else "look at"} "locked{"/model.safetensors" if mode else ""}": {DENIED}\n'
    for words, expected in [
        (["ls", "locked"], look),
        (["show", "locked"], look),
        (["verify", "locked/"], None),
        (["ls", "locked/model.safetensors"], f'[cohort] error: cannot open "locked/model.safetensors": {DENIED}\n'),
        (["convert", "a.safetensors", "locked/b.pt"],
         f'[cohort] error: cannot write "locked/b.pt"\n  caused by: cannot create a file in "locked": {DENIED}\n'
         "  hint: check that the folder exists and is writable\n"),
        (["convert", "a.safetensors", "locked/b"], None),
    ]:
        code, output, error = run(folder, *words, wrapper=OTHER)
        assert code == 1, (words, code, output, error)
        assert DENIED in output + error, (words, output, error)
        if expected:
            assert (output, error) == ("", expected)


# Limits.


def limit_files(num_bytes):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


@pytest.mark.parametrize("target", ["big.pt", "big", "big.safetensors"])
def test_a_limit_on_the_size_of_files_is_an_error_like_a_full_disk(folder, target):
    torch.save({"weight": torch.zeros(1 << 18)}, folder / "a.pt")
    code, output, error = run(folder, "convert", "a.pt", target, preexec_fn=limit_files(1 << 16))
    assert (code, output) == (1, "")
    assert "File too large (EFBIG)\n  hint: files may have at most 64.0 KiB here (ulimit -f); raise this limit\n" in error
    assert sorted(folder.glob("big*")) in ([], [folder / "big"]) and not list(folder.glob("big/*"))


@pytest.mark.parametrize("target", ["big.pt", "big.safetensors", "big", "--dcp"])
def test_repeated_elements_are_not_written_until_the_disk_is_full(folder, target):
    """A view of one element that has 4 EiB, in a file of a kilobyte, twice: the sum is larger than 64 bits hold."""
    view = torch.zeros(1).expand(1 << 30, 1 << 30)
    torch.save({"a": view, "b": view, "c": view, "d": view}, folder / "a.pt")
    words = ["big", "--dcp"] if target == "--dcp" else [target]
    code, output, error = run(folder, "convert", "a.pt", *words)
    assert (code, output) == (1, "")
    name = "big" if target == "--dcp" else target
    assert f'cannot take 16.0 EiB for "{name}": No space left on device (ENOSPC)\n  hint: only ' in error, error
    assert not (folder / name).exists()


@pytest.mark.tier_all  # half a minute, most of it Python's
def test_200000_tensors_become_a_pt_file(folder):
    """Seconds; where each is looked for among all before it, minutes."""
    count = 200_000
    save_file({f"layer.{i}.weight": torch.tensor([float(i)]) for i in range(count)}, folder / "many.safetensors")
    assert run(folder, "convert", "many.safetensors", "many.pt", timeout=100) == (0, f"many.pt: {count} tensors\n", "")
    loaded = torch.load(folder / "many.pt")
    assert len(loaded) == count and all(loaded[f"layer.{i}.weight"].item() == i for i in range(0, count, 997))


@pytest.mark.parametrize("words", [["ls", "a.pt"], ["show", "a.pt"], ["verify", "a.pt"], ["convert", "a.pt", "b.safetensors"],
                                   ["convert", "a.pt", "b"], ["convert", "a.pt", "c", "--dcp"], ["diff", "a.pt", "a.pt"]], ids=" ".join)
def test_a_small_stack_is_enough(folder, words):
    """Dicts and lists that lie in each other, nearly as deep as readers allow."""
    nested, numbers = {"weight": torch.arange(6.0)}, 1
    for _ in range(190):
        nested, numbers = {"a": nested}, [numbers]
    torch.save(nested | {"b": numbers}, folder / "a.pt")
    code, _, error = run(folder, *words, wrapper=["sh", "-c", 'ulimit -s 64; exec "$@"', "sh"])
    assert (code, error) == (0, "")
