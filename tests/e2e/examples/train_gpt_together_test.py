"""train_gpt --tp beside train_gpt: the same losses, whatever else the ranks share, and checkpoints that all of them go on from."""
import shutil

import pytest

from example_runs import EXAMPLES, GPT_FLAGS, checkpoint, logged, run, train_gpt

pytestmark = pytest.mark.tier_all  # strategies together


def assert_alike(ours, theirs):
    assert ours.keys() == theirs.keys() and len(theirs) > 0
    assert all(ours[step] == pytest.approx(theirs[step], abs=1e-5) for step in theirs), (ours, theirs)


@pytest.mark.parametrize("flags", [
    ["--tp", 2],
    ["--tp", 2, "--dp-shard", 2, "--activation-checkpointing", 1],
    ["--cp", 2, "--dp-shard", 2, "--dropout", 0],
])
def test_losses_are_those_of_two_ranks(whole_run, text_folder, tmp_path, flags):
    """Four ranks, of which two at a time read the same text."""
    theirs = whole_run[0]
    if "--dropout" in flags:
        theirs = tmp_path / "two"
        theirs.mkdir()
        train_gpt(theirs, text_folder, "--steps", 24, "--dropout", 0)
    train_gpt(tmp_path, text_folder, "--steps", 24, *flags, ranks=4)
    for name in ("train/loss", "validation/loss", "test/loss"):
        assert_alike(logged(tmp_path, name), logged(theirs, name))
    assert {name: tensor.shape for name, tensor in checkpoint(tmp_path).items() if "rank." not in name} == {
        name: tensor.shape for name, tensor in checkpoint(theirs).items() if "rank." not in name}


@pytest.fixture(scope="module")
def one_rank(text_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    train_gpt(folder, text_folder, "--steps", 16, "--dropout", 0, ranks=1)
    return folder


@pytest.mark.parametrize("ranks, flags", [(2, []), (4, ["--tp", 2])])
def test_sequences_alone_share_parameters_out(one_rank, text_folder, tmp_path, ranks, flags):
    """All ranks read the same text, each its positions of it."""
    train_gpt(tmp_path, text_folder, "--steps", 16, "--dropout", 0, "--cp", 2, *flags, ranks=ranks)
    for name in ("train/loss", "validation/loss", "test/loss"):
        assert_alike(logged(tmp_path, name), logged(one_rank, name))


STAGES = ["--depth", 2, "--dropout", 0, "--steps", 16, "--eval-windows", 65]


@pytest.fixture(scope="module")
def two_blocks(text_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two_blocks")
    train_gpt(folder, text_folder, *STAGES)
    return folder


@pytest.mark.parametrize("ranks, flags", [
    (4, ["--pp", 2, "--dp-shard", 2, "--pp-microbatches", 2]),
    (8, ["--pp", 2, "--tp", 2, "--pp-schedule", "GPipe", "--activation-checkpointing", 1]),
    (8, ["--pp", 2, "--cp", 2]),
])
def test_losses_of_stages_are_those_of_two_ranks(two_blocks, text_folder, tmp_path, ranks, flags):
    """Two ranks, or lines of ranks, have other text."""
    out = train_gpt(tmp_path, text_folder, *STAGES, *flags, ranks=ranks)[1]
    for name in ("train/loss", "validation/loss", "test/loss"):
        assert_alike(logged(tmp_path, name), logged(two_blocks, name))
    assert "this GPT" in out
    assert {name: tensor.shape for name, tensor in checkpoint(tmp_path).items() if "rank." not in name} == {
        name: tensor.shape for name, tensor in checkpoint(two_blocks).items() if "rank." not in name}


INTERLEAVED = ["--depth", 4, "--dropout", 0, "--steps", 12, "--gradient-accumulation-steps", 2, "--tie-weights"]


def test_losses_of_several_stages_per_rank_are_those_of_two_ranks(text_folder, tmp_path_factory):
    """Two passes for a step, and the embedding is the last stage's weight, too."""
    whole = tmp_path_factory.mktemp("whole")
    train_gpt(whole, text_folder, *INTERLEAVED)
    for schedule, flags in [("Interleaved1F1B", ["--dp-shard", 2]), ("ZBVZeroBubble", [])]:
        folder = tmp_path_factory.mktemp(schedule)
        out = train_gpt(folder, text_folder, *INTERLEAVED, "--pp", 2, "--pp-schedule", schedule, *flags, ranks=4)[1]
        for name in ("train/loss", "validation/loss", "test/loss"):
            assert_alike(logged(folder, name), logged(whole, name))
        assert "this GPT" in out


def test_stages_go_on_in_other_ways(two_blocks, text_folder, tmp_path):
    train_gpt(tmp_path, text_folder, *STAGES, "--pp", 2, "--stop-at", 6, ranks=4)
    train_gpt(tmp_path, text_folder, *STAGES, "--tp", 2, "--resume", "--stop-at", 10, ranks=4)
    train_gpt(tmp_path, text_folder, *STAGES, "--pp", 2, "--dp-shard", 2, "--resume", ranks=4)
    assert_alike(logged(tmp_path), logged(two_blocks))


@pytest.mark.parametrize("num_parts", [3, 36])
def test_tests_have_whole_microbatches(text_folder, tmp_path, num_parts):
    """Tests have 32 windows at a time, which neither number divides."""
    flags = ["--depth", 2, "--dropout", 0, "--steps", 2, "--eval-every", 1, "--eval-windows", 65, "--batch-size", num_parts]
    whole, staged = tmp_path / "whole", tmp_path / "staged"
    for folder, more in [(whole, {"ranks": 1}), (staged, {"ranks": 2})]:
        folder.mkdir()
        train_gpt(folder, text_folder, *flags, *(["--pp", 2, "--pp-microbatches", num_parts] if folder == staged else []), **more)
    for name in ("train/loss", "validation/loss", "test/loss"):
        assert_alike(logged(staged, name), logged(whole, name))


TIED = [*STAGES[:4], "--steps", 10, "--tie-weights"]


@pytest.fixture(scope="module")
def tied_whole(text_folder, tmp_path_factory):
    """The whole run, and a folder with its first steps alone."""
    whole, begun = tmp_path_factory.mktemp("tied_whole"), tmp_path_factory.mktemp("tied_begun")
    train_gpt(whole, text_folder, *TIED, ranks=1)
    train_gpt(begun, text_folder, *TIED, "--stop-at", 6, ranks=1)
    return whole, begun


def test_tied_stages_go_on_as_one(tied_whole, text_folder, tmp_path):
    train_gpt(tmp_path, text_folder, *TIED, "--pp", 2, "--stop-at", 6)
    train_gpt(tmp_path, text_folder, *TIED, "--resume", ranks=1)
    assert_alike(logged(tmp_path), logged(tied_whole[0]))


@pytest.mark.parametrize("ranks, flags", [(2, ["--pp", 2]), (4, ["--pp", 2, "--tp", 2])])
def test_tied_one_goes_on_as_stages(tied_whole, text_folder, tmp_path, ranks, flags):
    """Its optimizer has one state for both names; the stages have two, with which they go on once more."""
    whole, begun = tied_whole
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    names = checkpoint(tmp_path).keys()
    assert "optimizer.state.transformer.wte.weight.exp_avg" in names and "optimizer.state.lm_head.weight.exp_avg" not in names
    train_gpt(tmp_path, text_folder, *TIED, *flags, "--resume", "--stop-at", 8, ranks=ranks)
    assert "optimizer.state.lm_head.weight.exp_avg" in checkpoint(tmp_path)
    train_gpt(tmp_path, text_folder, *TIED, *flags, "--resume", ranks=ranks)
    assert_alike(logged(tmp_path), logged(whole))


@pytest.mark.parametrize("flags, text", [
    (["--pp-schedule", "ZBV"],
     "--pp-schedule ZBV is not one of 1F1B, Interleaved1F1B, GPipe, LoopedBFS, InterleavedZeroBubble, ZBVZeroBubble, DualPipeV"),
    (["--pp-microbatches", 3],
     "--batch-size 4 in --pp-microbatches 3 leaves 1 windows over; choose a --pp-microbatches that divides --batch-size"),
    (["--memory-snapshots", 2],
     "--pp and --memory-snapshots do not go together: a rank that is lost may have been the only one with its stage; "
     "use --save-every to save in files"),
])
def test_what_does_not_go_with_stages_message(text_folder, tmp_path, flags, text):
    code, _, err = run(EXAMPLES / "train_gpt", "--data", text_folder, *GPT_FLAGS, "--pp", 2, *flags, cwd=tmp_path)
    assert code == 1
    assert err == f"train_gpt: error: {text}\n"


def test_goes_on_in_other_ways(whole_run, text_folder, tmp_path):
    train_gpt(tmp_path, text_folder, "--steps", 24, "--tp", 2, "--dp-replicate", 2, "--stop-at", 8, ranks=4)
    train_gpt(tmp_path, text_folder, "--steps", 24, "--fsdp", "--resume", "--stop-at", 16)
    train_gpt(tmp_path, text_folder, "--steps", 24, "--tp", 2, "--fsdp", "--resume", ranks=4)
    assert_alike(logged(tmp_path), logged(whole_run[0]))


def test_sequences_and_activation_checkpointing_do_not_go_together(text_folder, tmp_path):
    code, _, err = run(EXAMPLES / "train_gpt", "--data", text_folder, *GPT_FLAGS, "--cp", 2, "--activation-checkpointing", 1, cwd=tmp_path)
    assert code == 1
    assert err == ("train_gpt: error: --cp and --activation-checkpointing do not go together: a block that backward recomputes would see "
                   "only this rank's positions; leave out one of them\n")


def test_numbers_that_do_not_fit(text_folder, tmp_path):
    code, _, err = run(EXAMPLES / "train_gpt", "--data", text_folder, *GPT_FLAGS, "--steps", 4, "--tp", 2, cwd=tmp_path)
    assert code == 1
    assert err == ("train_gpt: error: [cohort] ParallelDims: dp_replicate is -1, which stands for the rest of 1 ranks, but pp(1) * dp_shard(1) * "
                   "cp(1) * tp(2) = 2 does not divide 1: 1 mod 2 = 1\n"
                   "  hint: start a multiple of 2 ranks, or change one of the numbers\n")
