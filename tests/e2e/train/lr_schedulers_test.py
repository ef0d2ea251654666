"""Learning-rate schedulers: rates and momenta over 200 steps, bit by bit as torch.optim.lr_scheduler's, and states that go on in the
other language. The cases of programs/train/lr_schedulers.cpp."""
import collections
import subprocess
import warnings

import pytest
import torch
from harness import BUILD
from torch.optim import lr_scheduler as lr
from torch.optim.swa_utils import SWALR

# The order of the steps of optimizer and scheduler, of which there are none of the optimizer here.
pytestmark = pytest.mark.filterwarnings("ignore")
NUM_STEPS = 200
MIDDLE = 77
METRICS = [1.0 / (1 + i // 3) + 0.01 * (i * 37 % 19) for i in range(NUM_STEPS)]
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.02, "momentum": 0.6}, {}),
    "adamw": (torch.optim.AdamW, {"lr": 0.1, "betas": (0.8, 0.95)}, {"lr": 0.02, "betas": (0.7, 0.9)}, {"fused": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.1, "momentum": 0.5}, {"lr": 0.02, "momentum": 0.4}, {}),
}


def shrink(epoch):
    return 0.95 ** epoch


def closed_forms(o):
    return [lr.ConstantLR(o, 0.5, 3), lr.StepLR(o, 4, 0.5), lr.MultiStepLR(o, [0, 7, 9], 0.5), lr.PolynomialLR(o, 30, 2.0),
            lr.ExponentialLR(o, 0.9), lr.LinearLR(o, 0.3, 0.9, 12), lr.LambdaLR(o, shrink), lr.ConstantLR(o, 0.25, 7)]


CASES = {
    "step": ("sgd", lambda o: lr.StepLR(o, 7, 0.9)),
    "multi_step": ("adamw", lambda o: lr.MultiStepLR(o, [80, 5, 5, 120], 0.3)),
    "constant": ("sgd", lambda o: lr.ConstantLR(o, 0.3, 90)),
    "linear": ("sgd", lambda o: lr.LinearLR(o, 0.1, 0.7, 100)),
    "exponential": ("adamw", lambda o: lr.ExponentialLR(o, 0.97)),
    "polynomial": ("sgd", lambda o: lr.PolynomialLR(o, 150, 1.7)),
    "lambda": ("sgd", lambda o: lr.LambdaLR(o, shrink)),
    "lambdas": ("sgd", lambda o: lr.LambdaLR(o, [shrink, lambda epoch: 1.0 / (1.0 + epoch)])),
    "multiplicative": ("sgd", lambda o: lr.MultiplicativeLR(o, lambda epoch: 0.95)),
    "cosine": ("sgd", lambda o: lr.CosineAnnealingLR(o, 30, 0.001)),
    "warm_restarts": ("sgd", lambda o: lr.CosineAnnealingWarmRestarts(o, 9, 2, 0.001)),
    "warm_restarts_in_epochs": ("sgd", lambda o: lr.CosineAnnealingWarmRestarts(o, 9, 3)),
    "warm_restarts_alike": ("adamw", lambda o: lr.CosineAnnealingWarmRestarts(o, 9)),
    "one_cycle": ("adamw", lambda o: lr.OneCycleLR(o, 0.3, total_steps=200)),
    "one_cycle_linear": ("sgd", lambda o: lr.OneCycleLR(
        o, [0.3, 0.1], epochs=20, steps_per_epoch=10, pct_start=0.45, anneal_strategy="linear", base_momentum=[0.8, 0.7],
        max_momentum=[0.9, 0.95], div_factor=10, final_div_factor=100, three_phase=True)),
    "cyclic": ("sgd", lambda o: lr.CyclicLR(o, [0.01, 0.02], 0.2, step_size_up=13, mode="triangular2")),
    "cyclic_range": ("adamw", lambda o: lr.CyclicLR(o, 0.01, 0.2, step_size_up=11, step_size_down=17, mode="exp_range", gamma=0.99)),
    "cyclic_plain": ("rmsprop", lambda o: lr.CyclicLR(o, 0.01, 0.2, step_size_up=10)),
    "cyclic_own": ("rmsprop", lambda o: lr.CyclicLR(o, 0.01, 0.2, step_size_up=9, scale_fn=lambda x: 0.9 / x, cycle_momentum=False)),
    "swa": ("sgd", lambda o: SWALR(o, [0.3, 0.005], 40)),
    "swa_linear": ("adamw", lambda o: SWALR(o, 0.05, 90, "linear")),
    "plateau": ("sgd", lambda o: lr.ReduceLROnPlateau(o, factor=0.8, patience=2, threshold=0.01, cooldown=1, min_lr=[0.02, 0.001])),
    "plateau_max": ("adamw", lambda o: lr.ReduceLROnPlateau(o, mode="max", factor=0.5, patience=5, threshold_mode="abs")),
    "sequential": ("sgd", lambda o: lr.SequentialLR(
        o, [lr.LinearLR(o, 0.1, 1.0, 10), lr.CosineAnnealingLR(o, 190), lr.CosineAnnealingWarmRestarts(o, 20)], [10, 120])),
    "sequential_closed": ("sgd", lambda o: lr.SequentialLR(o, closed_forms(o), [10, 30, 50, 76, 77, 78, 140])),
    "sequential_nested": ("sgd", lambda o: lr.SequentialLR(
        o, [lr.ChainedScheduler([lr.ExponentialLR(o, 0.97), lr.ConstantLR(o, 0.5, 20)]), lr.CosineAnnealingLR(o, 60)], [90])),
    "chained": ("adamw", lambda o: lr.ChainedScheduler(
        [lr.ConstantLR(o, 0.1, 20), lr.ExponentialLR(o, 0.98), lr.CosineAnnealingLR(o, 50, 0.01)])),
}


class Run:
    def __init__(self, name):
        self.name, (self.kind, make) = name, CASES[name]
        optimizer, first, second, common = OPTIMIZERS[self.kind]
        groups = [{"params": [torch.ones(2, requires_grad=True)], **options} for options in (first, second)]
        self.optimizer = optimizer(groups, **{**first, **common})
        self.scheduler = make(self.optimizer)
        self.rates, self.momenta = [], []

    def record(self):
        for group in self.optimizer.param_groups:
            self.rates.append(group["lr"])
            self.momenta.append(group["betas"][0] if self.kind == "adamw" else group["momentum"])

    def take_steps(self, start, end):
        for i in range(start, end):
            if self.name.startswith("plateau"):
                self.scheduler.step(METRICS[i])
            elif self.name == "warm_restarts_in_epochs" and i % 5 != 0:
                self.scheduler.step(i / 3.0)
            else:
                self.scheduler.step()
            self.record()

    def states(self):
        return {"optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict()}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """By case: Python's numbers and states, and C++'s."""
    warnings.simplefilter("ignore")
    folder = tmp_path_factory.mktemp("schedulers")
    python, states = {}, {"metrics": torch.tensor(METRICS, dtype=torch.float64)}
    for name in CASES:
        run = Run(name)
        run.record()
        run.take_steps(0, MIDDLE)
        torch.save(run.states(), folder / "middle")
        states[name] = torch.load(folder / "middle")
        run.take_steps(MIDDLE, NUM_STEPS)
        python[name] = {"rates": run.rates, "momenta": run.momenta, "middle": states[name]}
    torch.save(states, folder / "from.pt")
    subprocess.run([BUILD / "bin/tests/lr_schedulers", folder / "from.pt", folder / "to.pt"], check=True, timeout=300)
    return python, torch.load(folder / "to.pt")


def flat(value):
    """Without the differences between 0 and 0.0, lists and tuples, and what a scheduler of schedulers has only if it is in one."""
    if isinstance(value, dict):
        left_out = {"_step_count", "_is_initial"} if "_schedulers" in value else {}
        return {key: flat(item) for key, item in value.items() if key not in left_out}
    if isinstance(value, (list, tuple)):
        return [flat(item) for item in value]
    return float(value) if isinstance(value, int) else value


@pytest.mark.parametrize("name", CASES)
def test_rates_and_momenta_are_pytorchs(both, name):
    python, cpp = both[0][name], both[1][name]
    assert cpp["rates"].tolist() == python["rates"]
    assert cpp["momenta"].tolist() == python["momenta"]
    assert len(set(python["rates"])) > 5 or name == "constant"


@pytest.mark.parametrize("name", CASES)
def test_states_are_pytorchs(both, name):
    wanted, got = both[0][name]["middle"], both[1][name]["middle"]
    assert flat(got["scheduler"]) == flat(wanted["scheduler"])
    assert list(got["scheduler"]) == list(wanted["scheduler"])
    assert flat(got["optimizer"]["param_groups"]) == flat(wanted["optimizer"]["param_groups"])


@pytest.mark.parametrize("name", CASES)
def test_pythons_run_goes_on_here(both, name):
    python, cpp = both[0][name], both[1][name]
    assert cpp["rest"].tolist() == python["rates"][2 * (MIDDLE + 1):]
    assert cpp["rest_momenta"].tolist() == python["momenta"][2 * (MIDDLE + 1):]


@pytest.mark.parametrize("name", CASES)
def test_our_run_goes_on_in_python(both, name):
    run = Run(name)
    run.optimizer.load_state_dict(both[1][name]["middle"]["optimizer"])
    run.scheduler.load_state_dict(both[1][name]["middle"]["scheduler"])
    run.take_steps(MIDDLE, NUM_STEPS)
    assert run.rates == both[0][name]["rates"][2 * (MIDDLE + 1):]
    assert run.momenta == both[0][name]["momenta"][2 * (MIDDLE + 1):]


def test_milestones_stay_a_counter(both):
    assert type(both[1]["multi_step"]["middle"]["scheduler"]["milestones"]) is collections.Counter
