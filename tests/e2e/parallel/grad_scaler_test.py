"""GradScaler, bit by bit as PyTorch's: the calls of programs/parallel/grad_scaler.cpp."""
import math
import subprocess

import torch
from safetensors.torch import load_file

NUM_STEPS = 30


def set_scaled_gradients(scaler, parameters, step):
    torch.manual_seed(50 + step)
    for i, parameter in enumerate(parameters):
        gradient = torch.randn(33).to(parameter.dtype)
        if step % 5 == 4 and i == 1:
            gradient[7] = -math.inf
        if step % 7 == 6 and i == 0:
            gradient[32] = math.nan
        parameter.grad = None if i == 2 and step % 2 == 1 else scaler.scale(gradient)


def results_of_pytorch():
    torch.manual_seed(3)
    parameters = [torch.randn(33).to(dtype).requires_grad_() for dtype in (torch.float32, torch.float64, torch.bfloat16)]
    sgd = torch.optim.SGD(parameters[:1], lr=0.1)
    adamw = torch.optim.AdamW(parameters[1:], lr=0.05, fused=True)
    adamw._step_supports_amp_scaling = False  # ours has its gradients unscaled before the step, as every optimizer
    first = torch.amp.GradScaler("cpu", init_scale=1000.3, growth_factor=1.7, backoff_factor=0.3, growth_interval=3)
    second = torch.amp.GradScaler("cpu")
    results = {}
    for step in range(NUM_STEPS):
        scaler = first if step < 16 else second
        if step == 16:
            second.load_state_dict(first.state_dict())
        set_scaled_gradients(scaler, parameters, step)
        if step % 3 == 0:
            scaler.unscale_(sgd)
        scaler.step(sgd)
        scaler.step(adamw)
        scaler.update(123.5 if step == 10 else None)
        results[f"{step}.scale"] = torch.tensor(scaler.get_scale(), dtype=torch.float64)
        results[f"{step}.tracker"] = torch.tensor(scaler.state_dict()["_growth_tracker"])
        for i, parameter in enumerate(parameters):
            results[f"{step}.parameter.{i}"] = parameter.detach().clone()
            if parameter.grad is not None:
                results[f"{step}.gradient.{i}"] = parameter.grad.clone()
    return results


def test_scales_and_steps_are_pytorchs(tmp_path, programs):
    file = tmp_path / "results.safetensors"
    subprocess.run([programs / "grad_scaler", file], check=True, timeout=300)
    got, wanted = load_file(file), results_of_pytorch()
    assert got.keys() == wanted.keys()
    different = [name for name in wanted if got[name].dtype != wanted[name].dtype
                 or not torch.equal(got[name].nan_to_num(nan=7.5), wanted[name].nan_to_num(nan=7.5))]
    assert not different
    scales = [wanted[f"{step}.scale"].item() for step in range(NUM_STEPS)]
    assert any(a < b for a, b in zip(scales, scales[1:])) and any(a > b for a, b in zip(scales, scales[1:]))  # the oracle itself
