"""Which functions a checkpoint runs again, in which order, and what its errors say: beside torch.utils.checkpoint."""
import functools
import subprocess

import pytest
import torch
from torch.utils.checkpoint import checkpoint

TRACE = []


def new_input():
    return torch.full((2, 3), 0.5, requires_grad=True)


def leaf(x):
    TRACE.append("(c")
    y = x.exp().sin()
    TRACE.append(" c)")
    return y + 1


def nested(**options):
    def middle(x):
        TRACE.append("(b")
        y = checkpoint(leaf, x.sin(), **options).cos()
        TRACE.append(" b)")
        return y

    def outer(x):
        TRACE.append("(a")
        y = checkpoint(middle, x.cos(), **options).sin()
        TRACE.append(" a)")
        return y

    y = checkpoint(outer, new_input(), **options).sum()
    TRACE.append(" | ")
    y.backward(retain_graph=True)
    TRACE.append(" | ")
    y.backward()


def inside(**options):
    def function(x):
        TRACE.append("(f")
        z = x.sin().cos()
        gradient, = torch.autograd.grad(z.sum(), x)
        TRACE.append(" g")
        y = x.cos() * gradient
        TRACE.append(" f)")
        return y

    y = checkpoint(function, new_input(), **options).sum()
    TRACE.append(" | ")
    y.backward()


def change(first, later, **options):
    runs = iter([first])
    checkpoint(lambda x: next(runs, later)(x), new_input(), **options).sum().backward()


def two(x):
    return x.exp().sin()


def wide(x):
    return x.double().exp()[0].sin()


def reentrant_grad():
    x = new_input()
    torch.autograd.grad(checkpoint(leaf, x, use_reentrant=True).sum(), x)


SCENARIOS = {
    "nested reentrant": lambda: nested(use_reentrant=True),
    "grad reentrant": reentrant_grad,
    "constant reentrant": lambda: checkpoint(lambda x: x.detach().exp(), new_input(), use_reentrant=True).sum().backward(),
}
for name, early_stop in {"early": True, "full": False}.items():
    options = {"use_reentrant": False, "early_stop": early_stop}
    SCENARIOS |= {
        f"nested {name}": lambda options=options: nested(**options),
        f"inside {name}": lambda options=options: inside(**options),
        f"fewer {name}": lambda options=options: change(two, torch.exp, **options),
        f"more {name}": lambda options=options: change(torch.exp, two, **options),
        f"other {name}": lambda options=options: change(two, wide, **options),
    }


@functools.cache
def traces_of(program):
    output = subprocess.run([program], capture_output=True, text=True, check=True, timeout=300).stdout
    return dict(part.split("\n", 1) for part in output.split("\n====\n")[:-1])


@pytest.fixture
def ours(programs):
    return traces_of(programs / "checkpoint_trace")


def test_every_scenario_is_run(ours):
    assert ours.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_trace_is_pytorchs(ours, name):
    TRACE.clear()
    try:
        SCENARIOS[name]()
    except RuntimeError as error:
        TRACE.append(str(error).split("\n\nTip:")[0])
    assert ours[name] == "".join(TRACE)
