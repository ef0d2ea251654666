"""optim_python_rank.py RESULT: the calls of programs/parallel/optim_rank.cpp, made by PyTorch."""
import math
import os
import sys
import warnings
from collections import OrderedDict

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn import Parameter, utils

warnings.simplefilter("ignore")
STEPS = 9
ORDERS = {"1": 1, "2": 2, "3.5": 3.5, "0": 0, "inf": math.inf, "-inf": -math.inf}


def parameters_with_gradients(seed):
    torch.manual_seed(seed)
    parameters = []
    for i, shape in enumerate([(7,), (3, 5), (), (130,), (2, 3, 4)]):
        dtype = torch.float64 if i % 2 else torch.float32
        parameters.append(Parameter(torch.zeros(shape, dtype=dtype)))
        parameters[-1].grad = torch.randn(shape).to(dtype)
    return [*parameters, Parameter(torch.zeros(4))]


def clip(results):
    def record(name, parameters):
        results.update({f"{name}.{i}": p.grad.clone() for i, p in enumerate(parameters[:-1])})

    seed = 0
    for way, foreach in {"none": None, "true": True, "false": False}.items():
        for order, norm_type in ORDERS.items():
            for size, max_norm in {"small": 0.7, "large": 1e9}.items():
                name = f"clip.{way}.{order}.{size}"
                parameters = parameters_with_gradients(seed := seed + 1)
                results[name + ".norm"] = utils.clip_grad_norm_(parameters, max_norm, norm_type, foreach=foreach)
                record(name, parameters)
        parameters = parameters_with_gradients(seed := seed + 1)
        utils.clip_grad_value_(parameters, 0.3, foreach)
        record(f"value.{way}", parameters)
        utils.clip_grads_with_norm_(parameters, 0.1, torch.tensor(3.0), foreach)
        record(f"with_norm.{way}", parameters)
        results[f"total.{way}"] = utils.get_total_norm([parameters[0], parameters[0].grad], 2, False, foreach)


class LocalSteps:
    def __init__(self, scheme):
        torch.manual_seed(100 + scheme)
        values = [torch.randn(shape) for shape in ((3, 4), (5,), (2,))]
        values[1] = values[1].double()
        self.parameters = [Parameter(value) for value in values]

    def set_gradients(self, step):
        torch.manual_seed(1000 * step + dist.get_rank())
        for parameter in self.parameters[:2]:
            parameter.grad = torch.randn(parameter.shape).to(parameter.dtype)

    def record(self, results, name, step):
        results.update({f"{name}.{step}.{i}": p.detach().clone() for i, p in enumerate(self.parameters)})


def average(results, name, averager):
    local = LocalSteps(1)
    optimizer = torch.optim.SGD(local.parameters, lr=0.1, momentum=0.9)
    for step in range(STEPS):
        local.set_gradients(step)
        optimizer.step()
        averager.average_parameters(local.parameters)
        local.record(results, name, step)


def post_local_sgd(results):
    local, state = LocalSteps(2), None
    for begin, end in ((0, 4), (4, STEPS)):
        sgd = torch.optim.SGD([{"params": local.parameters[:1]}, {"params": local.parameters[1:]}], lr=0.1, momentum=0.9)
        optimizer = PostLocalSGDOptimizer(sgd, PeriodicModelAverager(period=2, warmup_steps=3))
        if state:
            optimizer.load_state_dict(state)
        for step in range(begin, end):
            local.set_gradients(step)
            optimizer.step()
            local.record(results, "post_local", step)
            results[f"post_local.{step}.step"] = torch.tensor(optimizer.averager.step)
        state = optimizer.state_dict()


def main(result):
    dist.init_process_group("gloo")
    results = {}
    clip(results)
    average(results, "periodic", PeriodicModelAverager(period=3, warmup_steps=2))
    average(results, "hierarchical",
            HierarchicalModelAverager(OrderedDict([(2, 2), (4, dist.get_world_size())]), warmup_steps=1))
    post_local_sgd(results)
    save_file({name: tensor.contiguous() for name, tensor in results.items()}, result)
    dist.destroy_process_group()
    os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py


if __name__ == "__main__":
    main(*sys.argv[1:])
