"""AveragedModel and update_bn, bit by bit as torch.optim.swa_utils: the ways of programs/train/averaged_model.cpp."""
import subprocess

import pytest
import torch
from harness import BUILD
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn, get_swa_multi_avg_fn, update_bn


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())


def larger(averaged, current, n_averaged):
    return torch.maximum(averaged, current) + n_averaged.to(current.dtype)


WAYS = {
    "mean": {},
    "mean_with_buffers": {"use_buffers": True},
    "mean_multi": {"multi_avg_fn": get_swa_multi_avg_fn()},
    "ema": {"multi_avg_fn": get_ema_multi_avg_fn(0.9), "use_buffers": True},
    "ema_single": {"avg_fn": get_ema_avg_fn(0.8)},
    "own": {"avg_fn": larger, "use_buffers": True},
    "copy": {"multi_avg_fn": get_ema_multi_avg_fn()},
}


def copy_of(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


@pytest.fixture(scope="module")
def states():
    torch.manual_seed(3)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    states = []
    for _ in range(9):
        states.append(copy_of(net))
        optimizer.zero_grad()
        net(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()
    return states


@pytest.fixture(scope="module")
def batches():
    torch.manual_seed(4)
    return [torch.randn(size, 4) * 3 + 1 for size in (16, 16, 7)]


@pytest.fixture(scope="module")
def cpp(states, batches, tmp_path_factory):
    folder = tmp_path_factory.mktemp("averages")
    torch.save({"states": states, "batches": batches}, folder / "from.pt")
    subprocess.run([BUILD / "bin/tests/averaged_model", folder / "from.pt", folder / "to.pt"], check=True, timeout=300)
    return torch.load(folder / "to.pt")


def assert_same(got, wanted):
    assert list(got) == list(wanted)
    assert not [name for name in wanted if got[name].dtype != wanted[name].dtype or not torch.equal(got[name], wanted[name])]


@pytest.mark.parametrize("way", WAYS)
def test_averages_are_pytorchs(cpp, states, way):
    net = Net()
    net.load_state_dict(states[0])
    average = AveragedModel(net, **WAYS[way])
    for got, state in zip(cpp[way]["averages"], states, strict=True):
        net.load_state_dict(state)
        average.update_parameters(net)
        assert_same(got, average.state_dict())
    assert not torch.equal(average.state_dict()["module.first.weight"], states[-1]["first.weight"])


def test_update_bn_is_pytorchs(cpp, states, batches):
    net = Net()
    net.load_state_dict(states[-1])
    average = AveragedModel(net).eval()
    update_bn([(batch, None) for batch in batches], average)
    assert_same(cpp["bn"], average.state_dict())
    assert average.module.norm.num_batches_tracked == 3 and not average.module.training
