"""Schedulers, GradScaler, random numbers and a module's metadata: Python's states go on in C++, and C++'s in Python."""
import pickle
import subprocess

import pytest
import torch
from harness import BUILD
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

METRICS = [3.0, 2.0, 2.5, 2.5, 2.5, 1.0, 1.5, 1.5, 1.5, 1.5, 1.5, 0.5]
MIDDLE = 4


def make_optimizer(rate=0.8):
    return torch.optim.SGD([torch.ones(2, requires_grad=True)], rate)


def make_plateau(optimizer):
    return ReduceLROnPlateau(optimizer, factor=0.5, patience=1, cooldown=1, min_lr=0.05)


def rates(optimizer, scheduler, arguments):
    result = []
    for each in arguments:
        scheduler.step(*each)
        result.append(optimizer.param_groups[0]["lr"])
    return result


def middle_of(make, arguments):
    """The state after MIDDLE steps, the rate then, and the rates that follow."""
    optimizer = make_optimizer()
    scheduler = make(optimizer)
    rates(optimizer, scheduler, arguments[:MIDDLE])
    state = {"state": scheduler.state_dict(), "rate": optimizer.param_groups[0]["lr"]}
    return pickle.loads(pickle.dumps(state)), rates(optimizer, scheduler, arguments[MIDDLE:])


def go_on_in_python(make, cpp, arguments):
    optimizer = make_optimizer()
    scheduler = make(optimizer)
    scheduler.load_state_dict(cpp["state"])
    optimizer.param_groups[0]["lr"] = cpp["rates"][-1]
    return rates(optimizer, scheduler, arguments)


@pytest.fixture(scope="module")
def python():
    scaler = torch.amp.GradScaler("cpu", init_scale=512.0, growth_factor=3.0, growth_interval=7)
    torch.manual_seed(5)
    torch.rand(3)
    step_lr, step_rates = middle_of(lambda optimizer: StepLR(optimizer, 3, 0.5), [()] * 14)
    plateau, plateau_rates = middle_of(make_plateau, [(metric,) for metric in METRICS])
    states = {"step_lr": step_lr, "plateau": {**plateau, "metrics": METRICS[MIDDLE:-3]},
              "scaler": scaler.state_dict(), "random": {"cpu": torch.get_rng_state()}}
    return {"states": states, "step_rates": step_rates, "plateau_rates": plateau_rates, "numbers": torch.rand(8)}


@pytest.fixture(scope="module")
def cpp(python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    (folder / "from").write_bytes(pickle.dumps(python["states"]))
    subprocess.run([BUILD / "bin/tests/other_states", folder / "from", folder / "to"], check=True)
    return pickle.loads((folder / "to").read_bytes())


def test_step_lr(python, cpp):
    assert cpp["step_lr"]["rates"] == pytest.approx(python["step_rates"][:5])
    rest = go_on_in_python(lambda optimizer: StepLR(optimizer, 3, 0.5), cpp["step_lr"], [()] * 5)
    assert rest == pytest.approx(python["step_rates"][5:])
    assert len(set(rest)) > 1
    known = StepLR(make_optimizer(), 3, 0.5).state_dict()
    assert list(cpp["step_lr"]["state"]) == [key for key in known if key != "base_lrs"]


def test_reduce_on_plateau(python, cpp):
    count = len(python["plateau_rates"]) - 3
    assert cpp["plateau"]["rates"] == pytest.approx(python["plateau_rates"][:count])
    rest = go_on_in_python(make_plateau, cpp["plateau"], [(metric,) for metric in METRICS[-3:]])
    assert rest == pytest.approx(python["plateau_rates"][count:])
    assert len(set(python["plateau_rates"])) > 2
    known = make_plateau(make_optimizer()).state_dict()
    assert list(cpp["plateau"]["state"]) == [key for key in known if key != "default_min_lr"]
    for key in ("factor", "min_lrs", "patience", "cooldown", "mode", "threshold", "threshold_mode", "mode_worse"):
        assert cpp["plateau"]["state"][key] == pytest.approx(known[key]), key


def test_grad_scaler(python, cpp):
    assert cpp["scaler"] == python["states"]["scaler"]
    torch.amp.GradScaler("cpu").load_state_dict(cpp["scaler"])


def test_random_numbers(python, cpp):
    assert torch.equal(cpp["random"]["numbers"], python["numbers"])
    torch.set_rng_state(python["states"]["random"]["cpu"])
    torch.rand(8)
    assert torch.equal(cpp["random"]["states"]["cpu"], torch.get_rng_state())


def test_a_modules_metadata(cpp):
    state = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)).state_dict()
    assert list(cpp["module"]["state"]) == list(state)
    assert cpp["module"]["metadata"] == dict(state._metadata)
    assert {key: value.dtype for key, value in cpp["module"]["state"].items()} == {k: v.dtype for k, v in state.items()}
