"""SGD, Adam and AdamW, bit by bit as PyTorch's with fused=True: the steps of programs/parallel/fused_optimizers.cpp. Complex
parameters, which PyTorch's fused optimizers refuse, within rounding as its others."""
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from harness import BUILD

NUM_STEPS = 20
DTYPES = {"Float": torch.float32, "BFloat16": torch.bfloat16, "Double": torch.float64, "Half": torch.float16,
          "ComplexFloat": torch.complex64}
CASES = {  # the first group's options, and the second's
    "adamw": (torch.optim.AdamW, {"lr": 0.02, "betas": (0.8, 0.95)}, {"lr": 0.01, "weight_decay": 0.3, "eps": 1e-6}),
    "amsgrad": (torch.optim.AdamW, {"lr": 0.02, "amsgrad": True, "weight_decay": 0.1}, {"lr": 0.01, "weight_decay": 0}),
    "adam": (torch.optim.Adam, {"lr": 0.02}, {"lr": 0.01, "weight_decay": 0.3}),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.02, "amsgrad": True}, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.3}),
    "sgd": (torch.optim.SGD, {"lr": 0.05}, {"lr": 0.1, "weight_decay": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True},
                 {"lr": 0.02, "momentum": 0.8, "dampening": 0.4, "weight_decay": 0.1}),
}
STATE = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq", "max_exp_avg_sq": "max", "momentum_buffer": "momentum"}


def drawn(shape, dtype):
    return torch.randn(shape, dtype=dtype) if dtype.is_complex else torch.randn(shape).to(dtype)


def results_of(case, dtype_name):
    kind, first, second = CASES[case]
    torch.manual_seed(7)
    dtype = DTYPES[dtype_name]
    parameters = [drawn(shape, dtype).requires_grad_()
                  for shape in ((257,), (0, 3), (5, 3, 2), (), (1031,), (2,))]
    optimizer = kind([{"params": parameters[:3], **first}, {"params": parameters[3:], **second}], fused=not dtype.is_complex)
    results = {}
    for step in range(NUM_STEPS):
        torch.manual_seed(100 + step)
        for i, parameter in enumerate(parameters[:-1]):
            gradient = drawn(parameter.shape, dtype)
            parameter.grad = None if i == 2 and step % 3 == 2 else gradient
        optimizer.step()
        for i, parameter in enumerate(parameters):
            key = f"{case}.{dtype_name}.{step}.{i}"
            results[key] = parameter.detach().clone()
            state = optimizer.state.get(parameter, {})
            results.update({f"{key}.{ours}": state[name].clone() for name, ours in STATE.items() if state.get(name) is not None})
            if "step" in state:
                results[f"{key}.step"] = state["step"].long()
    return results


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    file = tmp_path_factory.mktemp("fused") / "results.safetensors"
    subprocess.run([BUILD / "bin" / "tests" / "fused_optimizers", file], check=True, timeout=300)
    return load_file(file)


# Python's fused SGD of 16-bit numbers is wrong on the CPU: FusedSGD.OfSixteenBitsIsThatOfFloat32Rounded shows what is right.
@pytest.mark.parametrize("case,dtype", [(case, dtype) for case, (kind, *_) in CASES.items() for dtype in DTYPES
                                        if not DTYPES[dtype].is_complex
                                        and (kind is not torch.optim.SGD or DTYPES[dtype].itemsize > 2)])
def test_numbers_are_pytorchs_with_fused(ours, case, dtype):
    wanted = results_of(case, dtype)
    got = {name: tensor for name, tensor in ours.items() if name.startswith(f"{case}.{dtype}.")}
    assert got.keys() == wanted.keys()
    different = [name for name in wanted if got[name].dtype != wanted[name].dtype or not torch.equal(got[name], wanted[name])]
    assert not different


# Rounding differs, and what an update of Adam divides by may be small.
@pytest.mark.parametrize("case", CASES)
def test_complex_numbers_are_pytorchs(ours, case):
    wanted = results_of(case, "ComplexFloat")
    got = {name: tensor for name, tensor in ours.items() if name.startswith(f"{case}.ComplexFloat.")}
    assert got.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(got[name], tensor, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}")
