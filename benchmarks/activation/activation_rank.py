"""The Python process of the question "activation-checkpointing": the GPT of cohort/models with torch.utils.checkpoint.

Arguments: the rank, the pipe that commands come from, an init method, of which only the pipe is used. "run VARIANT.memory"
answers with the peak memory, in MiB, that forward and backward allocate in addition to existing tensors.
"""
import contextlib
import pathlib
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from training_rank import Trainee, answer_commands, set_weights  # noqa: E402

MOST_TOKENS, VOCABULARY, LAYERS, HEADS, WIDTH = 256, 256, 8, 8, 512


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.c_attn(x).split(WIDTH, 2)]
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
        self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = Mlp()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, variant):
        super().__init__()
        self.variant = variant
        self.wte = nn.Embedding(VOCABULARY, WIDTH)
        self.wpe = nn.Embedding(MOST_TOKENS, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[:tokens.size(1)]
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False) if self.variant == "checkpoint" else block(x)
        return self.lm_head(self.ln_f(x)).flatten(0, 1)


class ActivationTrainee(Trainee):
    def __init__(self, variant, num_tokens):
        net = Gpt(variant)
        set_weights(net)
        torch.manual_seed(100)
        tokens = torch.randint(VOCABULARY, (1, num_tokens + 1))
        super().__init__(net, (tokens[:, :-1], tokens[0, 1:]))
        self.offloads = variant == "save-on-cpu"

    def run_pass(self):
        with torch.autograd.graph.save_on_cpu() if self.offloads else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(self.forward(self.batch[0]), self.batch[1])
        loss.backward()
        return loss

    def step(self):
        self.optimizer.zero_grad()
        loss = self.run_pass()
        self.optimizer.step()
        return loss

    def peak_mib(self):
        self.optimizer.zero_grad(set_to_none=False)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            self.run_pass()
        now = peak = 0
        events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        for event in sorted(events, key=lambda event: event.start_ns()):
            now += event.nbytes()
            peak = max(peak, now)
        return peak / 2**20


class Memory:
    """The trainee that answer_commands runs as VARIANT.memory."""

    def __init__(self, trainee):
        self.trainee = trainee

    def run_steps(self, *_):
        return f"{self.trainee.peak_mib():.6f}"


MADE = {}


def make_trainee(name, num_tokens):
    variant, _, memory = name.partition(".")
    if variant not in MADE:
        MADE[variant] = ActivationTrainee(variant, int(num_tokens))
    return Memory(MADE[variant]) if memory else MADE[variant]


def main():
    torch.set_num_threads(1)
    answer_commands(sys.argv[2], make_trainee, lambda trainee: f"{trainee.step().item():.10g} {trainee.gradient_sums()}")


if __name__ == "__main__":
    main()
