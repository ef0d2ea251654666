"""training_rank.cpp in Python, on Gloo, with torch.save: the same model, written anew, and events at the same points."""
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

LAYERS, HEADS, WIDTH, CONTEXT, KILLED_AFTER = 8, 8, 512, 64, 6
times, path, every = sys.argv[1], sys.argv[3], int(sys.argv[4])
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
rank = int(os.environ["RANK"])


def write_time(what):
    with open(times, "a") as file:
        file.write(f"{what} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}\n")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.proj(nn.functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def forward(self, tokens):
        return self.head(self.ln_f(self.h(self.wte(tokens) + self.wpe.weight)))


if not first:
    write_time("main")
dist.init_process_group("gloo")
torch.manual_seed(1)
net = Gpt()
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
tokens = torch.arange(CONTEXT + 1).remainder(256).unsqueeze(0)
step = 0
if os.path.exists(path):
    saved = torch.load(path)
    net.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
while True:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    step += 1
    if not first:
        write_time("done")
        break
    if rank == 0:
        write_time("begins-to-keep")
    if step % every == 0 and rank == 0:
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
        os.replace(path + ".new", path)
    if rank == 0:
        write_time("kept")
    if step == KILLED_AFTER and rank == 1:
        write_time("crash")
        os.kill(os.getpid(), signal.SIGKILL)
os._exit(0)  # PyTorch's Gloo threads may abort while the interpreter ends
