"""train_gpt --tp beside train_gpt: the same losses, whatever else the ranks share, and checkpoints that all of them go on from."""
import pytest

from example_runs import EXAMPLES, GPT_FLAGS, checkpoint, logged, run, train_gpt


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
    assert {name: tensor.shape for name, tensor in checkpoint(tmp_path).items()} == {
        name: tensor.shape for name, tensor in checkpoint(theirs).items()}


def test_goes_on_in_other_ways(whole_run, text_folder, tmp_path):
    train_gpt(tmp_path, text_folder, "--steps", 24, "--tp", 2, "--dp-replicate", 2, "--stop-at", 8, ranks=4)
    train_gpt(tmp_path, text_folder, "--steps", 24, "--fsdp", "--resume", "--stop-at", 16)
    train_gpt(tmp_path, text_folder, "--steps", 24, "--tp", 2, "--fsdp", "--resume", ranks=4)
    assert_alike(logged(tmp_path), logged(whole_run[0]))


def test_sequences_and_activation_checkpointing_do_not_go_together(text_folder, tmp_path):
    code, _, err = run(EXAMPLES / "train_gpt", "--data", text_folder, *GPT_FLAGS, "--cp", 2, "--activation-checkpointing", 1, cwd=tmp_path)
    assert code == 1
    assert err == ("train_gpt: error: --cp and --activation-checkpointing do not go together: a block that backward computes again would see "
                   "this rank's positions alone; leave out one of them\n")


def test_numbers_that_do_not_fit(text_folder, tmp_path):
    code, _, err = run(EXAMPLES / "train_gpt", "--data", text_folder, *GPT_FLAGS, "--steps", 4, "--tp", 2, cwd=tmp_path)
    assert code == 1
    assert err == ("train_gpt: error: [cohort] ParallelDims: dp_replicate is to be the rest of 1 ranks, but pp(1) * dp_shard(1) * "
                   "cp(1) * tp(2) = 2 does not divide 1: 1 mod 2 = 1\n"
                   "  hint: start a multiple of 2 ranks, or change one of the numbers\n")
