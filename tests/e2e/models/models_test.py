"""The C++ models against the same nets in Python PyTorch: same weights and input, same output, loss and gradients."""
import math
import subprocess

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from harness import BUILD

WORKER = BUILD / "bin" / "cohort_models_test"


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (t.view(batch, time, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).split(width, 2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(width / self.heads)
        scores = scores.masked_fill(torch.ones(time, time).tril() == 0, -math.inf)
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, width))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, block_size=16, vocab=65, depth=2, heads=4, width=32):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocab, width), wpe=nn.Embedding(block_size, width),
            h=nn.ModuleList(Block(width, heads) for _ in range(depth)), ln_f=nn.LayerNorm(width)))
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.block_size = block_size

    def forward(self, tokens):
        x = self.transformer.wte(tokens) + self.transformer.wpe(torch.arange(tokens.shape[1]))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


class BasicBlock(nn.Module):
    def __init__(self, in_channels, out_channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(out_channels), nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, 1, 1, bias=False)
        self.downsample = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
                                            nn.BatchNorm2d(out_channels))

    def forward(self, x):
        shortcut = self.downsample(x) if self.downsample else x
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + shortcut)


class ResNet(nn.Module):
    def __init__(self, width=16, classes=10):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        for i in range(4):
            last, this = width << max(0, i - 1), width << i
            setattr(self, f"layer{i + 1}", nn.Sequential(BasicBlock(last, this, 1 if i == 0 else 2), BasicBlock(this, this, 1)))
        self.fc = nn.Linear(width * 8, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for i in range(4):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(x.mean((2, 3)))


def run_worker(name, *arguments):
    done = subprocess.run([str(WORKER), f"--worker={name}", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def given_of(model, **tensors):
    weights = {name: tensor.detach().clone().contiguous() for name, tensor in model.state_dict().items()}
    return weights | {f"given.{name}": tensor for name, tensor in tensors.items()}


@pytest.mark.parametrize("kind", ["gpt", "resnet"])
def test_forward_and_backward_equal_pytorchs(kind, tmp_path):
    torch.manual_seed(0)
    if kind == "gpt":
        model, inputs = GPT(), torch.randint(65, (3, 16))
        target = torch.randint(65, (3, 16))
    else:
        model, inputs = ResNet(), torch.randn(4, 3, 32, 32)
        target = torch.randint(10, (4,))
    save_file(given_of(model, input=inputs, target=target), tmp_path / "given.safetensors")
    run_worker("model_oracle", kind, tmp_path / "given.safetensors", tmp_path / "results.safetensors")

    output = model(inputs)
    loss = F.cross_entropy(output.flatten(0, -2), target.flatten())
    loss.backward()
    expected = {"output": output.detach(), "loss": loss.detach()}
    expected |= {f"grad.{name}": p.grad for name, p in model.named_parameters()}
    expected |= {f"buffer.{name}": b for name, b in model.named_buffers()}
    results = load_file(tmp_path / "results.safetensors")
    assert results.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(results[name], tensor, rtol=2e-4, atol=2e-5, msg=lambda text, n=name: f"{n}: {text}")


def test_greedy_generation_equals_pytorchs(tmp_path):
    torch.manual_seed(1)
    model = GPT()
    prompt = torch.randint(65, (2, 5))
    save_file(given_of(model, input=prompt), tmp_path / "given.safetensors")
    run_worker("gpt_generate", tmp_path / "given.safetensors", tmp_path / "results.safetensors")
    tokens = prompt
    with torch.no_grad():
        for _ in range(40):
            logits = model(tokens[:, -model.block_size:])[:, -1]
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
    assert torch.equal(load_file(tmp_path / "results.safetensors")["tokens"], tokens)
