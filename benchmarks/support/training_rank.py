"""Functions that the Python ranks of benchmarks share: weights, the timed step, and the commands of a team (team.h)."""
import math
import os
import pathlib
import sys
import time

import torch
from torch import nn

LEARNING_RATE = 1e-4

if os.environ.get("COHORT_SHARED_ALLOCATOR") == "1":  # cohort-bench --allocator=shared: for the rivals, too
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "build/python"))
    import torchcohort  # noqa: F401


@torch.no_grad()
def set_weights(module):
    torch.manual_seed(7)
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            bound = 1 / math.sqrt(parameter.numel() // parameter.size(0))
            parameter.uniform_(-bound, bound)
        else:
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)


def make_mlp(width):
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def local(tensor):
    """Returns this rank's shard of a DTensor, or any other tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Trainee:
    """A model in training on one batch of (input, target)."""

    def __init__(self, forward, batch):
        self.forward = forward
        self.batch = batch
        self.parameters = list(forward.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, LEARNING_RATE)

    def step(self):
        self.optimizer.zero_grad()
        output = self.forward(self.batch[0])
        criterion = nn.functional.mse_loss if self.batch[1].is_floating_point() else nn.functional.cross_entropy
        loss = criterion(output, self.batch[1])
        loss.backward()
        self.optimizer.step()
        return loss

    def gradient_sums(self):
        gradients = [local(parameter.grad) for parameter in self.parameters]
        total = sum(gradient.sum(dtype=torch.double).item() for gradient in gradients)
        squares = sum(gradient.square().sum(dtype=torch.double).item() for gradient in gradients)
        return f"{total:.10g} {squares:.10g}"

    def run_steps(self, num_warm, num_steps):
        for _ in range(num_warm):
            self.step()
        begin = time.perf_counter()
        for _ in range(num_steps):
            self.step()
        return f"{(time.perf_counter() - begin) * 1e3 / num_steps:.6f}"


def answer_commands(path, make_trainee, verify, others=None):
    """"copy VARIANT CASE" makes a trainee; "verify VARIANT" and "run VARIANT WARM STEPS" answer with `verify`'s result for it
    and with milliseconds per step; "drop" frees all; "quit" ends. `others`: functions of a trainee, by their verbs."""
    trainees = {}
    with open(path) as lines:
        for line in iter(lines.readline, ""):
            verb, *words = line.split()
            if verb == "quit":
                return
            if verb == "copy":
                trainees[words[0]] = make_trainee(*words)
                answer = "ok"
            elif verb == "drop":
                trainees.clear()
                answer = "ok"
            elif verb == "verify":
                answer = verify(trainees[words[0]])
            elif others and verb in others:
                answer = others[verb](trainees[words[0]])
            else:
                answer = trainees[words[0]].run_steps(int(words[1]), int(words[2]))
            print("=", answer, flush=True)


def leave():
    """Ends the process. The threads of PyTorch's own Gloo may abort it while the interpreter ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
