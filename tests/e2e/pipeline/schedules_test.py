"""Lists of actions are those of torch.distributed.pipelining, for many shapes, and so are files and tables of them."""
import collections
import contextlib
import csv
import io
import itertools
import subprocess

import pytest
import torch
from torch.distributed.pipelining import schedules

SINGLE = ["GPipe", "1F1B"]
LOOPED = ["LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble"]
V = ["ZBVZeroBubble", "DualPipeV"]
SHAPES = ([(name, ranks, ranks, n) for name in SINGLE for ranks in [1, 2, 3, 4, 8] for n in [1, 2, 3, 4, 5, 8, 13, 16]]
          + [(name, ranks, ranks * local, n) for name in LOOPED for ranks in [1, 2, 3, 4, 8] for local in [1, 2, 3, 4]
             for n in [1, 2, 3, 4, 6, 8, 9, 10, 12, 16]]
          + [(name, ranks, 2 * ranks, n) for name in V for ranks in [1, 2, 3, 4, 8] for n in [1, 2, 3, 4, 5, 7, 8, 10, 16, 17, 24]]
          + [("ZBVZeroBubble", 2, 6, 4), ("DualPipeV", 4, 4, 8), ("DualPipeV", 2, 3, 8)])


class FakeStage:
    """What schedules ask of a stage, without a process group."""

    def __init__(self, index, ranks, stages):
        self.stage_index, self.group_size, self.num_stages = index, ranks, stages
        self.group_rank, self.submod, self.is_first, self.is_last = 0, None, index == 0, index == stages - 1


def python_schedule(name, ranks, stages, microbatches, **options):
    kind = schedules.get_schedule_class(name)
    if name in SINGLE:
        return kind(FakeStage(0, ranks, stages), microbatches)
    return kind([FakeStage(0, ranks, stages) for _ in range(stages // ranks)], microbatches, **options)


def csv_text(order):
    out = io.StringIO()
    writer = csv.writer(out)
    for rank in sorted(order):
        writer.writerow(order[rank])
    return out.getvalue()


@contextlib.contextmanager
def without_reduce_grad():
    """Python's lists of single stages keep their idle steps then."""
    known = schedules._add_reduce_grad
    schedules._add_reduce_grad = lambda actions, n_microbatches: list(actions)
    try:
        yield
    finally:
        schedules._add_reduce_grad = known


def corrected(name, order, ranks):
    """Python draws the forwards of 1F1B's last stage with numbers that are one too high."""
    if name == "1F1B":
        order[ranks - 1] = [a._replace(microbatch_index=a.microbatch_index - 1)
                            if a is not None and a.computation_type == schedules.F else a for a in order[ranks - 1]]
    return order


def python_plan(name, ranks, stages, microbatches):
    with without_reduce_grad():
        schedule = python_schedule(name, ranks, stages, microbatches)
    return corrected(name, {rank: list(actions) for rank, actions in schedule.pipeline_order.items()}, ranks)


def sorted_reshards(text):
    """RESHARDs side by side come in the order of a set in Python."""
    lines = []
    for line in text.split("\r\n"):
        groups = itertools.groupby(line.split(","), lambda action: "RESHARD" in action)
        lines.append([action for is_reshard, group in groups
                      for action in (sorted(group, key=lambda a: int(a.split("R")[0])) if is_reshard else group)])
    return lines


@pytest.fixture
def ask(programs):
    def run(requests):
        text = "".join(" ".join(map(str, request)) + "\n" for request in requests)
        done = subprocess.run([programs / "pipeline_lists"], input=text.encode(), capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode()
        answers = done.stdout.decode().split("\n.\n")
        assert answers.pop() in ("", "."), done.stdout[-200:]
        assert len(answers) == len(requests)
        return [answer + "\n" for answer in answers]

    return run


def expected_of(make):
    """Text, or the error."""
    try:
        return make()
    except (ValueError, RuntimeError) as error:
        return f"error: {error}\n"


def test_plans_equal_python(ask):
    answers = ask([("plan", *shape) for shape in SHAPES])
    num_errors = 0
    for shape, answer in zip(SHAPES, answers):
        if shape[1:3] == (2, 3):
            assert answer.startswith("error: num_stages 3 must be evenly divisible by pp_size 2 for V schedules")
            continue
        expected = expected_of(lambda: csv_text(python_plan(*shape)))
        num_errors += expected.startswith("error")
        assert answer == expected, shape
    assert 20 < num_errors < len(SHAPES) / 2


def test_reduction_of_gradients_equals_python(ask):
    shapes = [("GPipe", 4, 4, 8), ("GPipe", 1, 1, 2), ("1F1B", 4, 4, 4), ("1F1B", 2, 2, 7)]
    for shape, answer in zip(shapes, ask([("reduce", *shape) for shape in shapes])):
        assert answer == csv_text(corrected(shape[0], python_schedule(*shape).pipeline_order, shape[1])), shape


@pytest.mark.parametrize("request_name, options", [("lower", {}), ("defer", {"defer_pp_recv": True})])
def test_communication_equals_python(ask, request_name, options):
    fine = [shape for shape in SHAPES if shape[0] not in SINGLE and shape[1:3] != (2, 3)
            and not expected_of(lambda: csv_text(python_plan(*shape))).startswith("error")]
    assert len(fine) > 100
    num_mixed = 0
    for shape, answer in zip(fine, ask([(request_name, *shape) for shape in fine])):
        schedule = python_schedule(*shape, **options)
        if options and mixes_messages(schedule):
            num_mixed += 1
            assert not answer.startswith("error"), shape
            continue
        expected = csv_text(schedule.pipeline_order_with_comms)
        assert sorted_reshards(answer) == sorted_reshards(expected), shape
    assert 0 <= num_mixed < len(fine) / 2


def mixes_messages(schedule):
    """Whether ranks receive what others send in another order, as some of Python's deferred lists do."""
    sent, received = collections.defaultdict(list), collections.defaultdict(list)
    rank_of = schedule.stage_index_to_group_rank
    for rank, actions in schedule.pipeline_order_with_comms.items():
        for stage, kind, microbatch, _ in actions:
            name = kind.value
            if name.startswith(("SEND", "RECV")):
                is_send, step = name.startswith("SEND"), 1 if name.endswith("F") else -1
                peer = rank_of[stage + step if is_send else stage - step]
                pair, first = ((rank, peer), stage) if is_send else ((peer, rank), stage - step)
                (sent if is_send else received)[pair].append((name[-1], first, microbatch))
    return sent != received


def test_single_stage_schedules_get_the_communication_that_python_would_add(ask):
    shapes = [shape for shape in SHAPES if shape[0] in SINGLE and (shape[0] == "GPipe" or shape[3] >= shape[2])]
    for shape, answer in zip(shapes, ask([("lower", *shape) for shape in shapes])):
        name, ranks, stages, microbatches = shape
        order = {rank: schedules._add_reduce_grad(schedules._add_unshard_reshard(actions), microbatches)
                 for rank, actions in python_plan(*shape).items()}
        expected = schedules._add_send_recv(order, stage_to_rank=lambda stage: stage, num_stages=stages)
        assert sorted_reshards(answer) == sorted_reshards(csv_text(expected)), shape


def test_tables_equal_python(ask):
    shapes = [("GPipe", 2, 2, 3), ("Interleaved1F1B", 4, 8, 8), ("DualPipeV", 4, 8, 16), ("InterleavedZeroBubble", 2, 4, 60)]
    for shape, answer in zip(shapes, ask([("table", *shape) for shape in shapes])):
        assert answer == schedules._format_pipeline_order(python_plan(*shape)), shape


def test_files_pass_between_the_two(ask, tmp_path):
    shapes = [("LoopedBFS", 2, 4, 3), ("DualPipeV", 2, 4, 6), ("ZBVZeroBubble", 4, 8, 3)]
    requests = []
    for index, shape in enumerate(shapes):
        schedule = python_schedule(*shape)
        for kind in ["compute_only", "compute_comms"]:
            path = tmp_path / f"{index}.{kind}"
            schedule._dump_csv(path, format=kind)
            requests.append(("copy", kind, *shape[1:], path, tmp_path / f"{index}.{kind}.out"))
    assert ask(requests) == ["ok\n"] * len(requests)
    for _, kind, *_, path, out in requests:
        assert out.read_bytes() == path.read_bytes()
        assert out.stat().st_mode & 0o777 == 0o600
    for index, shape in enumerate(shapes):
        schedule = python_schedule(*shape)
        expected = schedule.pipeline_order_with_comms
        schedule.pipeline_order_with_comms = {}
        schedule._load_csv(tmp_path / f"{index}.compute_comms.out", format="compute_comms")
        assert schedule.pipeline_order_with_comms == expected


def test_a_list_with_communication_is_no_compute_only_one(ask, tmp_path):
    schedule = python_schedule("LoopedBFS", 2, 4, 2)
    schedule._dump_csv(tmp_path / "plan", format="compute_comms")
    answer, = ask([("copy", "compute_only", 2, 4, 2, tmp_path / "plan", tmp_path / "out")])
    with pytest.raises(ValueError) as error:
        schedule._load_csv(tmp_path / "plan", format="compute_only")
    assert answer == f"error: {error.value}\n"
    assert not (tmp_path / "out").exists()


def test_torch_is_the_version_the_lists_are_those_of():
    assert torch.__version__.startswith("2.13")
