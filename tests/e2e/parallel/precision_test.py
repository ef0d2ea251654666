"""Training in mixed precision, with accumulation and clipping, and with synchronized batch norm: the steps of
programs/parallel/precision_train.cpp in Python."""
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.amp import custom_bwd, custom_fwd
from torch.nn import functional as F

from harness import run_ranks

NUM_STEPS, NUM_PASSES, BATCH = 8, 2, 6


class ExactProduct(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.mm(b)

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        a, b = ctx.saved_tensors
        return gradient.mm(b.t()), a.t().mm(gradient)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.hidden = nn.Linear(8, 16)
        self.head = nn.Linear(16, 5)
        self.exact = nn.Parameter(torch.randn(16, 16) / 4)

    def forward(self, x):
        y = self.hidden(self.norm(self.conv(x)).relu().mean((2, 3))).relu()
        return self.head(ExactProduct.apply(y, self.exact).to(y.dtype))


@pytest.fixture
def start(tmp_path):
    """A network and data, and their file."""
    torch.manual_seed(3)
    net = Net()
    images = (torch.randn(NUM_PASSES, BATCH, 3, 6, 6) + 0.5).repeat(NUM_STEPS, 1, 1, 1, 1, 1)
    labels = torch.randint(5, (NUM_PASSES, BATCH)).repeat(NUM_STEPS, 1, 1)
    tensors = {f"net.{name}": tensor for name, tensor in net.state_dict().items()}
    save_file(tensors | {"images": images, "labels": labels, "bounds": torch.tensor([0, 7, 7, NUM_PASSES * BATCH])}, tmp_path / "start")
    return net, images, labels, tmp_path / "start"


def trained(net, images, labels, autocast_dtype=None, scales=False, pure=False):
    if pure:
        net, images = net.bfloat16(), images.bfloat16()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05, fused=True)
    scaler = torch.amp.GradScaler("cpu", growth_interval=3, enabled=scales)
    results = {}
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        total = torch.zeros(())
        for x, y in zip(images[step], labels[step]):
            with torch.autocast("cpu", dtype=autocast_dtype, enabled=autocast_dtype is not None):
                loss = F.cross_entropy(net(x), y)
            loss = loss / NUM_PASSES
            scaler.scale(loss).backward()
            total += loss.detach()
        scaler.unscale_(optimizer)
        results[f"norm.{step}"] = nn.utils.clip_grad_norm_(net.parameters(), 0.5).float()
        scaler.step(optimizer)
        scaler.update()
        results[f"loss.{step}"] = total
        results[f"scale.{step}"] = torch.tensor(scaler.get_scale())
    return results | {f"net.{name}": tensor.detach() for name, tensor in net.state_dict().items()}


CASES = {"float": {}, "bf16": dict(autocast_dtype=torch.bfloat16), "fp16_scaler": dict(autocast_dtype=torch.float16, scales=True),
         "pure_bf16": dict(pure=True)}


@pytest.mark.parametrize("name", CASES)
def test_losses_norms_scales_and_weights_are_pytorchs(programs, start, tmp_path, name):
    net, images, labels, file = start
    subprocess.run([programs / "precision_train", name, file, tmp_path / "result"], check=True, timeout=300)
    got, wanted = load_file(tmp_path / "result"), trained(net, images, labels, **CASES[name])
    assert got.keys() == wanted.keys()
    assert [key for key in wanted if not torch.equal(got[key], wanted[key])] == []
    assert wanted["loss.7"] < 0.9 * wanted["loss.0"]  # the oracle itself
    if name == "fp16_scaler":
        assert len({wanted[f"scale.{step}"].item() for step in range(NUM_STEPS)}) > 1


def test_precisions_differ(start):
    net, images, labels, _ = start
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    losses = set()
    for options in CASES.values():
        fresh = Net()
        fresh.load_state_dict(state)
        losses.add(trained(fresh, images, labels, **options)["loss.7"].item())
    assert len(losses) == len(CASES)


def test_synchronized_ranks_train_as_python_on_the_joined_batch(programs, start, tmp_path):
    net, images, labels, file = start
    results = run_ranks([[programs / "precision_train", "sync", file, tmp_path / "result"]] * 3)
    assert [(code, err) for code, _, err in results] == [(0, "")] * 3
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, fused=True)
    got = load_file(tmp_path / "result")
    for step, (x, y) in enumerate(zip(images.flatten(1, 2), labels.flatten(1, 2))):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        assert got[f"loss.{step}"].item() == pytest.approx(loss.item(), rel=2e-6)
    for name, tensor in net.state_dict().items():
        torch.testing.assert_close(got[f"net.{name}"], tensor, rtol=2e-5, atol=2e-6, msg=name)
