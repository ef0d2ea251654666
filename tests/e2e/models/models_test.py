"""The C++ GPT beside the same net in Python: same weights and input, same output, loss, gradients and text; files of nanoGPT and GPT-2."""
import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from model_programs import assert_same_passes, run_worker, scramble

pytestmark = pytest.mark.tier_all  # training does not need these models


class LayerNorm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias)


class Attention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias), heads

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (t.view(batch, time, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).split(width, 2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(width / self.heads)
        scores = scores.masked_fill(torch.ones(time, time).tril() == 0, -math.inf)
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, width))


class MLP(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.ln_1, self.attn = LayerNorm(width, bias), Attention(width, heads, bias)
        self.ln_2, self.mlp = LayerNorm(width, bias), MLP(width, bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, block_size=16, vocab=65, depth=2, heads=4, width=32, bias=True, tie=False):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocab, width), wpe=nn.Embedding(block_size, width),
            h=nn.ModuleList(Block(width, heads, bias) for _ in range(depth)), ln_f=LayerNorm(width, bias)))
        self.lm_head = nn.Linear(width, vocab, bias=False)
        if tie:
            self.lm_head.weight = self.transformer.wte.weight
        self.block_size = block_size

    def forward(self, tokens):
        x = self.transformer.wte(tokens) + self.transformer.wpe(torch.arange(tokens.shape[1]))
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


@pytest.mark.parametrize("bias", [True, False])
def test_forward_and_backward_equal_pytorchs(bias, tmp_path):
    torch.manual_seed(0)
    model = scramble(GPT(bias=bias))
    assert_same_passes(model, "gpt", torch.randint(65, (3, 16)), torch.randint(65, (3, 16)), tmp_path, bias=bias)


def test_greedy_generation_equals_pytorchs(tmp_path):
    torch.manual_seed(1)
    model = GPT()
    prompt = torch.randint(65, (2, 5))
    torch.save({"model": model.state_dict()}, tmp_path / "ckpt.pt")
    save_file({"input": prompt}, tmp_path / "inputs.safetensors")
    run_worker("gpt_generate", "gpt", tmp_path / "ckpt.pt", tmp_path / "inputs.safetensors", tmp_path / "results.safetensors")
    tokens = prompt
    with torch.no_grad():
        for _ in range(40):
            logits = model(tokens[:, -model.block_size:])[:, -1]
            tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
    assert torch.equal(load_file(tmp_path / "results.safetensors")["tokens"], tokens)


def load(path, tmp_path, **options):
    """The notes of the report, and what the model has then."""
    report = run_worker("model_pretrained", "gpt", path, tmp_path / "results.safetensors", **options)
    return report.splitlines()[1:], load_file(tmp_path / "results.safetensors")


def assert_equal(actual, expected):
    assert actual.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(actual[key], tensor), key


def test_checkpoints_of_nanogpt(tmp_path):
    """As its train.py writes them: compiled, tied, without biases."""
    torch.manual_seed(2)
    model = GPT(bias=False, tie=True)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randint(65, (1, 16))).sum().backward()
    optimizer.step()
    torch.save({"model": {"_orig_mod." + key: tensor for key, tensor in model.state_dict().items()}, "optimizer": optimizer.state_dict(),
                "model_args": {"n_layer": 2, "n_head": 4, "n_embd": 32, "block_size": 16, "bias": False, "vocab_size": 65, "dropout": 0.0},
                "iter_num": 100, "best_val_loss": torch.tensor(1.5), "config": {"out_dir": "out", "compile": True}}, tmp_path / "ckpt.pt")
    notes, actual = load(tmp_path / "ckpt.pt", tmp_path, bias=False, tie_weights=True)
    assert notes == []
    assert_equal(actual, model.state_dict())


def gpt2_state(model, prefix):
    """What transformers' GPT2LMHeadModel with these weights has: linear maps the other way round, masks beside them."""
    state = {}
    for key, tensor in model.state_dict().items():
        if key == "lm_head.weight":
            continue
        is_map = key.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
        state[prefix + key.removeprefix("transformer.")] = tensor.t().contiguous() if is_map else tensor
    for layer in range(2):
        state[f"{prefix}h.{layer}.attn.bias"] = torch.ones(16, 16).tril().view(1, 1, 16, 16)
        state[f"{prefix}h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return state


@pytest.mark.parametrize("how", ["the hub's safetensors", "the hub's bin", "save_pretrained"])
@pytest.mark.parametrize("tie", [True, False])
def test_files_of_gpt2(how, tie, tmp_path):
    torch.manual_seed(3)
    model = scramble(GPT(tie=True))
    if how == "the hub's bin":
        path = tmp_path / "pytorch_model.bin"
        torch.save(gpt2_state(model, ""), path)
    else:
        path = tmp_path / "model.safetensors"
        save_file(gpt2_state(model, "" if how.startswith("the hub") else "transformer."), path)
    notes, actual = load(path, tmp_path, tie_weights=tie)
    turned = "  linear maps: transposed, as GPT-2's files have them the other way round"
    assert notes == [turned] + ([] if tie else ['  "lm_head.weight": the values of "transformer.wte.weight"'])
    assert_equal(actual, model.state_dict())


def test_a_shorter_context_takes_the_first_positions(tmp_path):
    torch.manual_seed(4)
    state = GPT().state_dict()
    save_file(state, tmp_path / "model.safetensors")
    notes, actual = load(tmp_path / "model.safetensors", tmp_path, block_size=6)
    assert notes == ['  "transformer.wpe.weight": the first 6 of 16 positions']
    assert_equal(actual, {**state, "transformer.wpe.weight": state["transformer.wpe.weight"][:6]})
