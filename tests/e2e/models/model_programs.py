"""Runs the workers of tests/extras/models/model_oracle_worker.cpp."""
import os
import subprocess

import torch
from safetensors.torch import load_file, save_file

from harness import BUILD

WORKER = BUILD / "bin" / "cohort_extras_models_test"


def run_worker(worker, name, *arguments, **options):
    words = [name, *map(str, arguments), *(f"{key}={int(value)}" for key, value in options.items())]
    done = subprocess.run([str(WORKER), f"--worker={worker}", *words], capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    return done.stdout


def scramble(model):
    """Values that say which tensor is which, also of norms, which begin with zeros and ones."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif tensor.dim() == 1:
                tensor.add_(torch.randn_like(tensor), alpha=0.1)
    return model


def passes(model, inputs, target, layout="plain"):
    """What model_passes does, by Python."""
    if layout != "plain" and inputs.dim() == 4:
        model, inputs = model.to(memory_format=torch.channels_last), inputs.contiguous(memory_format=torch.channels_last)
    results = {}
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=layout == "bfloat16"):
        model.eval()
        results["evaluated"] = model(inputs).detach().float()
        model.train()
        output = model(inputs)
        loss = torch.nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())
    loss.backward()
    results |= {"output": output.detach().float(), "loss": loss.detach().float()}
    results |= {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    return results | {f"buffer.{name}": buffer for name, buffer in model.named_buffers()}


def assert_same_passes(model, name, inputs, target, tmp_path, layout="plain", rtol=1e-5, atol=1e-5, **options):
    """The model in Python, its weights in a file and the C++ model of that name give the same results."""
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    save_file({"input": inputs, "target": target}, tmp_path / "inputs.safetensors")
    run_worker("model_passes", name, tmp_path / "weights.pth", tmp_path / "inputs.safetensors",
               tmp_path / "results.safetensors", layout, **options)
    expected, actual = passes(model, inputs, target, layout), load_file(tmp_path / "results.safetensors")
    assert actual.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(actual[key], tensor, rtol=rtol, atol=atol, msg=lambda text, k=key: f"{k}: {text}")
