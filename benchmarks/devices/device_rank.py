"""device_rank.cpp in Python: the same model, weights (from FILE), batch and optimizer, under PyTorch's DDP, and the same all_reduces."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

BLOCKS, STEPS, FIRST_STEPS = 7, 10, 3


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, length, layers, heads, width):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(256, width), "wpe": nn.Embedding(length, width),
            "h": nn.ModuleList(Block(width, heads) for _ in range(layers)), "ln_f": nn.LayerNorm(width)})
        self.lm_head = nn.Linear(width, 256, bias=False)

    def forward(self, tokens):
        x = self.transformer.wte(tokens) + self.transformer.wpe.weight[:tokens.size(1)]
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


def time_calls(count, call):
    both, host = [], []
    for block in range(BLOCKS + 1):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        called = time.perf_counter()
        torch.cuda.synchronize()
        if block:
            both.append((time.perf_counter() - begin) * 1e3 / count)
            host.append((called - begin) * 1e3 / count)
    return statistics.median(both), statistics.median(host)


def time_steps(size, dtype, file):
    dist.init_process_group("nccl")
    length, layers, heads, width = (128, 3, 3, 144) if size == "small" else (1024, 12, 12, 768)
    net = Gpt(length, layers, heads, width)
    net.load_state_dict(torch.load(file))
    model = DistributedDataParallel(net.cuda())
    optimizer = torch.optim.AdamW(net.parameters(), 1e-4, fused=True)
    places = torch.arange(8 * (length + 1))
    tokens = (places * places * 7 + places * 3).remainder(256).view(8, -1).cuda()

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    losses = " ".join(f"{step().item():.6f}" for _ in range(FIRST_STEPS))
    both, host = time_calls(STEPS, step)
    print(f"python {size} {dtype} on nccl, losses {losses}, step {both:.3f} ms, host {host:.3f} ms", flush=True)


def time_all_reduces(backend):
    dist.init_process_group(backend)
    for kib in (4, 1024, 16 * 1024, 64 * 1024, 256 * 1024):
        tensor = torch.zeros(kib * 256, device="cuda")
        ms, _ = time_calls(3 if kib > 1024 else 20, lambda: dist.all_reduce(tensor))
        if dist.get_rank() == 0:
            print(f"python all_reduce, {dist.get_world_size()} ranks, {backend}, {kib} KiB: {ms:.3f} ms, "
                  f"{kib * 1024 / ms / 1e6:.2f} GB/s", flush=True)


torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
if sys.argv[1] == "step":
    time_steps(*sys.argv[2:])
else:
    time_all_reduces(sys.argv[2])
dist.destroy_process_group()
