"""A run that was started in Python goes on in C++ with the same losses, and back: the layout of both states is Python's own."""
import pytest
import torch
from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

from harness import run_ranks
from rounding import assert_rounded_alike, rounding

STEPS = 4
LRS = (0.02, 0.05)
# Where Python's optimizer makes the same operations as ours (fused=True), the bits are the same. (Shards are as long as vectors:
# what is left over is computed one number at a time, which rounds otherwise.) Elsewhere so many operations may round otherwise, one
# after the other: the sums of a pass forward and backward, in each step.
EXACT = 0
NEAR = 2 * STEPS * (8 + 64 + 64 + 32)
OPTIMIZERS = {
    "adam": (torch.optim.Adam, {"weight_decay": 0.1, "betas": (0.8, 0.95), "fused": True}, EXACT),
    "amsgrad": (torch.optim.Adam, {"amsgrad": True, "fused": True}, EXACT),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.2, "fused": True}, EXACT),
    "sgd": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "fused": True}, EXACT),
    "libtorch_adam": (torch.optim.Adam, {"weight_decay": 0.1, "foreach": False}, NEAR),
    "libtorch_sgd": (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.1, "foreach": False}, NEAR),
    # With the default alpha and eps the first steps have ten times the rate, and what gradients are rounded by decides where they go.
    "rmsprop": (torch.optim.RMSprop, {"alpha": 0.9, "eps": 0.01, "momentum": 0.9, "centered": True, "foreach": False}, NEAR),
    "adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1, "initial_accumulator_value": 0.2, "foreach": False}, NEAR),
    # With one more iteration each step makes several times as much of what it begins with.
    "lbfgs": (torch.optim.LBFGS, {"history_size": 3, "max_iter": 3}, NEAR),
}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 64)
        self.second = torch.nn.Linear(64, 32)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def make_optimizer(name, net):
    kind, options, _ = OPTIMIZERS[name]
    if name == "lbfgs":
        return kind(net.parameters(), lr=0.5, **options)
    first = {"params": [net.first.weight, net.second.weight], "lr": LRS[0]}
    return kind([first, {"params": [net.first.bias, net.second.bias], "lr": LRS[1]}], **options)


def batches(size, begin=0, end=2 * STEPS):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2 * STEPS, size, 4, 8, generator=generator)
    y = torch.randn(2 * STEPS, size, 4, 32, generator=generator)
    return {"x": x[begin:end].clone(), "y": y[begin:end].clone()}


def train(net, optimizer, data):
    """As ranks that average their gradients; the losses are the first one's."""
    losses = []
    size = data["x"].shape[1]
    for x, y in zip(data["x"], data["y"]):
        def closure():
            optimizer.zero_grad()
            all_losses = [torch.nn.functional.mse_loss(net(x[rank]), y[rank]) for rank in range(size)]
            gradients = [torch.autograd.grad(loss, list(net.parameters())) for loss in all_losses]
            for parameter, *parts in zip(net.parameters(), *gradients):
                parameter.grad = sum(parts[1:], parts[0]) / size
            return all_losses[0]
        if isinstance(optimizer, torch.optim.LBFGS):
            losses.append(float(optimizer.step(closure).detach()))
        else:
            losses.append(float(closure().detach()))
            optimizer.step()
    return losses


def file_of(path, net, optimizer, data):
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), **data}, path)
    return path


class PythonRun:
    """Twice STEPS steps without a break, with files of its beginning and its middle."""

    def __init__(self, folder, name, size):
        torch.manual_seed(1)
        net = Net()
        optimizer = make_optimizer(name, net)
        self.start = file_of(folder / "start", net, optimizer, batches(size, 0, STEPS))
        self.losses = train(net, optimizer, batches(size, 0, STEPS))
        self.middle = file_of(folder / "middle", net, optimizer, batches(size, STEPS))
        self.losses += train(net, optimizer, batches(size, STEPS))
        self.model, self.optimizer = dict(net.state_dict()), optimizer.state_dict()


def run_cpp(programs, strategy, name, start, to, size):
    ranks = run_ranks([[programs / "going_on", strategy, name, STEPS, start, to]] * size)
    for rank, (code, out, err) in enumerate(ranks):
        assert code == 0, f"rank {rank}:\n{out}{err}"
    return torch.load(to, weights_only=True)


def require_near(got, wanted, near, path="optimizer"):
    if isinstance(wanted, torch.Tensor):
        assert_rounded_alike(got, wanted, near, path)
    elif isinstance(wanted, dict):
        assert list(got) == list(wanted), path
        for key in wanted:
            require_near(got[key], wanted[key], near, f"{path}.{key}")
    elif isinstance(wanted, (list, tuple)):
        assert type(got) is type(wanted) and len(got) == len(wanted), path
        for i, (a, b) in enumerate(zip(got, wanted)):
            require_near(a, b, near, f"{path}.{i}")
    elif isinstance(wanted, float):
        assert got == pytest.approx(wanted, rel=0, abs=rounding(torch.float32, near, abs(wanted))), path
    else:
        assert got == wanted, path


def require_losses(got, wanted, near):
    require_near(torch.tensor(got), torch.tensor(wanted), near, "losses")


def without_how(state):
    """What LibTorch has no word for keeps Python's default."""
    groups = [{key: value for key, value in group.items() if key not in ("foreach", "fused")}
              for group in state["param_groups"]]
    return {**state, "param_groups": groups}


CASES = [("plain", name) for name in OPTIMIZERS]
CASES += [(strategy, name) for strategy in ("ddp", "zero", "fsdp", "gathered")
          for name in ("adam", "adamw", "sgd", "rmsprop", "adagrad")]


@pytest.mark.tier_all_where(strategy=["gathered"], name=["adam", "sgd", "adagrad"])
@pytest.mark.parametrize("strategy,name", CASES)
def test_a_run_goes_on_in_the_other_language(tmp_path, programs, strategy, name):
    size = 1 if strategy == "plain" else 2
    near = OPTIMIZERS[name][2]
    python = PythonRun(tmp_path, name, size)

    second_half = run_cpp(programs, strategy, name, python.middle, tmp_path / "end", size)
    require_losses(second_half["losses"], python.losses[STEPS:], near)
    require_near(second_half["model"], python.model, near, "model")
    if strategy in ("fsdp", "gathered"):
        net = Net()
        optimizer = make_optimizer(name, net)
        set_optimizer_state_dict(net, optimizer, second_half["by_name"])
        require_near(without_how(optimizer.state_dict()), without_how(python.optimizer), near)
    else:
        assert second_half["model"]._metadata == Net().state_dict()._metadata
    require_near(without_how(second_half["optimizer"]), without_how(python.optimizer), near)

    first_half = run_cpp(programs, strategy, name, python.start, tmp_path / "cpp_middle", size)
    require_losses(first_half["losses"], python.losses[:STEPS], near)
    net = Net()
    optimizer = make_optimizer(name, net)
    net.load_state_dict(first_half["model"])
    optimizer.load_state_dict(first_half["optimizer"])
    losses = train(net, optimizer, batches(size, STEPS))
    require_losses(losses, python.losses[STEPS:], near)
    require_near(dict(net.state_dict()), python.model, near, "model")


def test_the_oracle_trains(tmp_path):
    runs = [PythonRun(tmp_path, name, 2) for name in ("adam", "amsgrad", "adamw", "sgd", "rmsprop", "adagrad")]
    assert len({run.losses[-1] for run in runs}) == len(runs)
    assert all(run.losses[-1] != run.losses[STEPS] for run in runs)
