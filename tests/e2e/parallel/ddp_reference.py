"""The oracle of ddp_test.py: Python's DistributedDataParallel on the nets of programs/parallel/nets.h.

As a module it writes the training cases; as a program, `ddp_reference.py CASES RESULTS`, it is one rank that trains them all.
"""
import contextlib
import gc
import os
import pathlib
import sys
import types

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel.distributed import _MixedPrecision

STEPS = 14


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(10, 32), nn.Linear(32, 32), nn.Linear(32, 4)

    def forward(self, x):
        return self.third(torch.relu(self.second(torch.relu(self.first(x)))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.places = nn.Parameter(torch.randn(12, 16))
        self.tokens = nn.Embedding(40, 16, sparse=sparse)
        self.norm1, self.qkv, self.proj = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm2, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)
        self.norm3, self.head = nn.LayerNorm(16), nn.Linear(16, 40, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places
        q, k, v = self.qkv(self.norm1(x)).view(len(ids), 12, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(len(ids), 12, 16))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(self.norm3(x))


class Branches(nn.Module):
    """`shared` has two names and is used twice; `left` and `right` are used as the flags say, `never` by nobody."""

    def __init__(self):
        super().__init__()
        self.trunk, self.shared, self.never = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8)
        self.again = self.shared

    def forward(self, x, flags):
        x = self.again(torch.relu(self.shared(self.trunk(x))))
        if flags & 1:
            x = x + self.left(x)
        if flags & 2:
            x = x + self.right(x)
        return x


class Mixed(nn.Module):
    """float, double and bfloat16 parameters."""

    def __init__(self):
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8, dtype=torch.double))
        self.narrow, self.head = nn.Linear(8, 8, dtype=torch.bfloat16), nn.Linear(8, 4)

    def forward(self, x):
        x = torch.tanh(torch.matmul(x, self.weight))
        x = self.narrow(x.to(torch.bfloat16)).to(torch.double) * self.scale
        return self.head(x.to(torch.float))


class CppAdamW(torch.optim.Optimizer):
    """AdamW as LibTorch's C++ front end computes it. Python's uses exp_avg.lerp_(grad, 1 - beta1) for the first average:
    the same number, rounded differently."""

    def __init__(self, parameters, lr, weight_decay, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(parameters, dict(lr=lr, weight_decay=weight_decay, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                p.mul_(1 - group["lr"] * group["weight_decay"])
                state["exp_avg"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                correction2 = (1 - beta2 ** state["step"]) ** 0.5
                denominator = (state["exp_avg_sq"].sqrt() / correction2).add_(group["eps"])
                p.addcdiv_(state["exp_avg"], denominator, value=-group["lr"] / (1 - beta1 ** state["step"]))


NETS = {"mlp": Mlp, "cnn": Cnn, "transformer": Transformer, "branches": Branches, "mixed": Mixed}
DEFAULTS = dict(optimizer="sgd", lr="0.05", momentum="0.9", bucket_cap_mb="", find_unused_parameters="0", static_graph="0",
                gradient_as_bucket_view="0", set_to_none="1", frozen="", sparse="0", hook="", join="",
                bucket_cap_mb_list="", skip_all_reduce_unused_params="0", batched_grad_copy="0", ignored="", delayed="",
                param_dtype="", reduce_dtype="", buffer_dtype="", dropped_passes="0")
SMALL = dict(bucket_cap_mb="0.001")
VIEW = dict(gradient_as_bucket_view="1")
# Until its buckets are rebuilt, PyTorch's reducer averages uninitialized memory in mixed precision (2.13).
# Not the transformer: LibTorch's C++ Linear adds the bias of a three-dimensional input after rounding the product.
LOW = dict(param_dtype="bfloat16", bucket_cap_mb="0.001", dropped_passes="2")
UNUSED = dict(find_unused_parameters="1")
STATIC = dict(static_graph="1")
# LibTorch's C++ SGD multiplies a bfloat16 average by its momentum rounded to bfloat16 (overload mul_.Scalar), Python's by
# the exact number (mul_.Tensor).
PLAIN = dict(momentum="0")

# Name of the case: net, micro-batches per step, how branches are used, settings.
CASES = {
    "mlp": ("mlp", 1, None, {}),
    "mlp_small_buckets": ("mlp", 1, None, SMALL),
    "mlp_view": ("mlp", 1, None, SMALL | VIEW),
    "mlp_zero_in_place": ("mlp", 1, None, SMALL | dict(set_to_none="0")),
    "mlp_zero_in_place_view": ("mlp", 1, None, SMALL | VIEW | dict(set_to_none="0")),
    "mlp_frozen": ("mlp", 1, None, SMALL | dict(frozen="second.weight")),
    "mlp_adamw": ("mlp", 1, None, SMALL | dict(optimizer="adamw", lr="0.01")),
    "mlp_adamw_of_python": ("mlp", 1, None, SMALL | dict(optimizer="adamw of python", lr="0.01")),
    "mlp_no_sync": ("mlp", 3, None, SMALL),
    "mlp_no_sync_view": ("mlp", 3, None, SMALL | VIEW | dict(set_to_none="0")),
    "cnn": ("cnn", 1, None, {}),
    "cnn_small_buckets": ("cnn", 1, None, SMALL),
    "cnn_no_sync": ("cnn", 2, None, SMALL),
    "transformer": ("transformer", 1, None, {}),
    "transformer_small_buckets": ("transformer", 1, None, SMALL),
    "transformer_view": ("transformer", 1, None, SMALL | VIEW),
    "transformer_sparse": ("transformer", 1, None, SMALL | PLAIN | dict(sparse="1")),
    "unused": ("branches", 1, "differs", SMALL | UNUSED),
    "unused_one_bucket": ("branches", 1, "differs", UNUSED),
    "unused_view": ("branches", 1, "differs", SMALL | UNUSED | VIEW),
    "unused_zero_in_place": ("branches", 1, "differs", SMALL | UNUSED | dict(set_to_none="0")),
    "unused_no_sync": ("branches", 2, "differs", SMALL | UNUSED),
    "static": ("branches", 1, "same", SMALL | STATIC),
    "static_default_buckets": ("branches", 1, "same", STATIC),
    "static_view": ("branches", 1, "same", SMALL | STATIC | VIEW),
    "mixed": ("mixed", 1, None, PLAIN),
    "mixed_small_buckets": ("mixed", 1, None, PLAIN | dict(bucket_cap_mb="0.0001")),
    "mixed_view": ("mixed", 1, None, PLAIN | VIEW),
    "hook_allreduce": ("mlp", 1, None, SMALL | dict(hook="allreduce")),
    "hook_allreduce_view": ("mlp", 1, None, SMALL | VIEW | dict(hook="allreduce", set_to_none="0")),
    "hook_allreduce_sparse": ("transformer", 1, None, SMALL | PLAIN | dict(hook="allreduce", sparse="1")),
    "hook_builtin_allreduce": ("mlp", 1, None, SMALL | dict(hook="builtin_allreduce")),
    "hook_builtin_fp16": ("mlp", 1, None, SMALL | dict(hook="builtin_fp16")),
    "hook_fp16": ("transformer", 1, None, SMALL | dict(hook="fp16")),
    "hook_fp16_no_sync": ("mlp", 3, None, SMALL | dict(hook="fp16")),
    "hook_fp16_unused": ("branches", 1, "differs", SMALL | UNUSED | dict(hook="fp16")),
    "hook_fp16_static": ("branches", 1, "same", SMALL | STATIC | dict(hook="fp16")),
    "hook_bf16": ("mlp", 1, None, SMALL | dict(hook="bf16")),
    "hook_noop": ("mlp", 1, None, SMALL | dict(hook="noop")),
    "hook_quantize_pertensor": ("mlp", 1, None, dict(hook="quantize_pertensor")),
    "hook_quantize_perchannel": ("mlp", 1, None, dict(hook="quantize_perchannel")),
    "hook_post_local_sgd": ("mlp", 1, None, SMALL | dict(hook="post_local_sgd")),
    "hook_powersgd": ("mlp", 1, None, dict(hook="powersgd")),
    "hook_powersgd_rank_3": ("transformer", 1, None, dict(hook="powersgd_rank_3")),
    "hook_powersgd_batched_shapes": ("branches", 1, "same", STATIC | dict(hook="powersgd_batched_shapes")),
    "hook_powersgd_cold": ("mlp", 1, None, dict(hook="powersgd_cold")),
    "hook_powersgd_bf16_wrapper": ("mlp", 1, None, dict(hook="powersgd_bf16_wrapper")),
    "hook_batched_powersgd": ("mlp", 1, None, dict(hook="batched_powersgd")),
    "join": ("mlp", 1, None, SMALL | dict(join="initial")),
    "join_live": ("mlp", 1, None, SMALL | dict(join="live")),
    "join_live_view": ("mlp", 1, None, SMALL | VIEW | dict(join="live", set_to_none="0")),
    "join_buffers": ("cnn", 1, None, SMALL | dict(join="initial")),
    "join_no_sync": ("cnn", 2, None, SMALL | dict(join="initial")),
    "join_hook": ("mlp", 1, None, SMALL | dict(join="initial", hook="fp16")),
    "option_cap_list": ("mlp", 1, None, dict(bucket_cap_mb_list="0.0002 0.003 0.001")),
    "option_cap_list_unused": ("branches", 1, "differs", UNUSED | dict(bucket_cap_mb_list="0.0001 0.0005")),
    "option_cap_list_static": ("branches", 1, "same", STATIC | dict(bucket_cap_mb_list="0.0001 0.0005")),
    "option_skip_unused": ("branches", 1, "same", UNUSED | SMALL | dict(skip_all_reduce_unused_params="1")),
    "option_skip_unused_view": ("branches", 1, "same", UNUSED | SMALL | VIEW | dict(skip_all_reduce_unused_params="1")),
    "option_skip_unused_hook": ("branches", 1, "same", UNUSED | SMALL | dict(skip_all_reduce_unused_params="1", hook="fp16")),
    "option_batched_copy": ("transformer", 1, None, SMALL | dict(batched_grad_copy="1")),
    "option_batched_copy_view": ("mlp", 1, None, SMALL | VIEW | dict(batched_grad_copy="1", set_to_none="0")),
    "option_batched_copy_no_sync": ("mlp", 3, None, SMALL | dict(batched_grad_copy="1")),
    "option_batched_copy_unused": ("branches", 1, "differs", SMALL | UNUSED | dict(batched_grad_copy="1")),
    "option_batched_copy_mixed": ("mixed", 1, None, PLAIN | dict(batched_grad_copy="1")),
    "option_batched_copy_hook": ("mlp", 1, None, SMALL | dict(batched_grad_copy="1", hook="fp16")),
    "option_fused_sgd": ("mlp", 1, None, SMALL | dict(optimizer="sgd_fused")),
    "option_fused_adamw": ("transformer", 1, None, SMALL | dict(optimizer="adamw_fused", lr="0.01")),
    "option_fused_adamw_unused": ("branches", 1, "differs", SMALL | UNUSED | dict(optimizer="adamw_fused", lr="0.01")),
    "option_fused_adam": ("mlp", 1, None, SMALL | dict(optimizer="adam_fused", lr="0.01")),
    "option_delayed": ("mlp", 1, None, dict(delayed="third.bias second.weight third.weight")),
    "option_delayed_zero_in_place": ("mlp", 1, None, dict(delayed="second.weight third.weight second.bias", set_to_none="0")),
    "precision": ("mlp", 1, None, LOW),
    "precision_float_sum": ("mlp", 1, None, LOW | dict(reduce_dtype="float32")),
    "precision_double_sum": ("mlp", 1, None, LOW | dict(reduce_dtype="float64", set_to_none="0")),
    "precision_half": ("mlp", 1, None, LOW | dict(param_dtype="float16", reduce_dtype="float32")),
    "precision_static": ("mlp", 1, None, LOW | STATIC),
    "precision_frozen": ("mlp", 1, None, LOW | dict(frozen="second.weight")),
    "precision_adamw": ("mlp", 1, None, LOW | dict(optimizer="adamw", lr="0.01")),
    "precision_buffers": ("cnn", 1, None, LOW | dict(buffer_dtype="bfloat16", ignored="bn1.num_batches_tracked bn2.num_batches_tracked")),
    "option_ignored": ("cnn", 1, None, SMALL | dict(ignored="conv1.weight bn2.bias bn1.running_mean")),
}


def orthogonalize_one(matrices, epsilon=0, of_batch=powerSGD_hook._orthogonalize):
    """batched_powerSGD_hook gives a matrix to a function that takes batches of them only."""
    of_batch(matrices.unsqueeze(0) if matrices.dim() == 2 else matrices, epsilon)


powerSGD_hook._orthogonalize = orthogonalize_one


class WaitsForDelayedGradients(DistributedDataParallel):
    """On GPUs the stream does; on the CPU nobody waits."""

    def _delayed_all_reduce_hook(self, gradient):
        self._delay_grad_buffer.div_(dist.get_world_size(self.process_group))
        dist.all_reduce(self._delay_grad_buffer, group=self.process_group)
        return gradient


class GathersAsOnGpus:
    """torch.distributed, for hooks that take a future of all_gather to hold one tensor of all ranks, as NCCL's does."""

    def __getattr__(self, name):
        return getattr(dist, name)

    def all_gather(self, outputs, *arguments, **options):
        work = dist.all_gather(outputs, *arguments, **options)
        return types.SimpleNamespace(get_future=lambda: work.get_future().then(lambda done: [torch.stack(done.wait())]))


quantization_hooks.dist = GathersAsOnGpus()


def bf16_compress(state, bucket):
    """By another name, since DistributedDataParallel refuses the hook's own without a GPU."""
    return default_hooks.bf16_compress_hook(state, bucket)


def powersgd_in_bf16(state, bucket, wrapped=default_hooks.bf16_compress_wrapper(powerSGD_hook.powerSGD_hook)):
    return wrapped(state, bucket)


def power_sgd(hook=powerSGD_hook.powerSGD_hook, **options):
    return lambda ddp: ddp.register_comm_hook(powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, **options), hook)


def post_local_sgd(ddp):
    alone, _ = dist.new_subgroups(1)
    state = post_localSGD_hook.PostLocalSGDState(None, alone, start_localSGD_iter=5)
    ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)


HOOKS = {
    "": lambda ddp: None,
    "allreduce": lambda ddp: ddp.register_comm_hook(None, default_hooks.allreduce_hook),
    "builtin_allreduce": lambda ddp: ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE),
    "builtin_fp16": lambda ddp: ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS),
    "fp16": lambda ddp: ddp.register_comm_hook(None, default_hooks.fp16_compress_hook),
    "bf16": lambda ddp: ddp.register_comm_hook(None, bf16_compress),
    "noop": lambda ddp: ddp.register_comm_hook(None, debugging_hooks.noop_hook),
    "quantize_pertensor": lambda ddp: ddp.register_comm_hook(None, quantization_hooks.quantization_pertensor_hook),
    "quantize_perchannel": lambda ddp: ddp.register_comm_hook(None, quantization_hooks.quantization_perchannel_hook),
    "post_local_sgd": post_local_sgd,
    "powersgd": power_sgd(),
    "powersgd_rank_3": power_sgd(matrix_approximation_rank=3, random_seed=5, orthogonalization_epsilon=1e-8),
    "powersgd_batched_shapes": power_sgd(matrix_approximation_rank=2, batch_tensors_with_same_shape=True, min_compression_rate=1,
                                         orthogonalization_epsilon=1e-8),
    "powersgd_cold": power_sgd(use_error_feedback=False, warm_start=False),
    "powersgd_bf16_wrapper": power_sgd(powersgd_in_bf16, matrix_approximation_rank=4),
    "batched_powersgd": power_sgd(powerSGD_hook.batched_powerSGD_hook),
}


# Of four ranks, for the order in which rings add: what differs between three and two has shown all else.
OF_FOUR = ["mlp_small_buckets", "mlp_no_sync_view", "cnn", "transformer_view", "unused", "unused_no_sync", "static", "mixed_small_buckets"]


def cases_of(world_size):
    """Hooks, options and uneven batches where two and where more ranks take part, which are all the ways they can differ."""
    if world_size == 4:
        return OF_FOUR
    return [name for name in CASES if world_size in (2, 3) or not name.startswith(("hook_", "join", "option_", "precision"))]


def data_of(net, lead):
    """Inputs and targets of shape [steps, micro-batches, ranks, ...]."""
    if net == "cnn":
        return torch.randn(*lead, 6, 3, 8, 8), torch.randint(5, (*lead, 6))
    if net == "transformer":
        return torch.randint(40, (*lead, 3, 12)), torch.randint(40, (*lead, 3, 12))
    width = 10 if net == "mlp" else 8
    return torch.randn(*lead, 5, width), torch.randn(*lead, 5, 8 if net == "branches" else 4)


def write_cases(folder, world_size, names=None):
    folder.mkdir()
    for name in names or cases_of(world_size):
        net, micro_batches, use, settings = CASES[name]
        torch.manual_seed(len(name))
        settings = DEFAULTS | settings | {"net": net}
        model = NETS[net](sparse=True) if settings["sparse"] == "1" else NETS[net]()
        lead = (STEPS, micro_batches, world_size)
        x, y = data_of(net, lead)
        # Bit 0: left, bit 1: right. In some steps no rank uses a branch, in others only some do.
        flags = torch.ones(lead, dtype=torch.long) if use == "same" else torch.randint(4, lead)
        if use == "differs":
            flags[5:8] &= 1
        tensors = {"x": x, "y": y, "flags": flags}
        tensors |= {f"initial.{key}": value for key, value in model.named_parameters()}
        tensors |= {f"initial.{key}": value for key, value in model.named_buffers()}
        save_file({key: value.detach().clone() for key, value in tensors.items()}, folder / f"{name}.safetensors", settings)


class Record:
    def __init__(self, model):
        self.model, self.values, self.buckets, self.logging = model, {}, "", ""

    def add(self, name, value):
        self.values.setdefault(name, []).append(value.detach().clone())

    def add_state(self):
        for name, parameter in self.model.named_parameters():
            self.add(f"parameter.{name}", parameter)
        for name, buffer in self.model.named_buffers():
            self.add(f"buffer.{name}", buffer)

    def add_gradients(self):
        for name, parameter in self.model.named_parameters():
            gradient = parameter.grad
            self.add(f"has_gradient.{name}", torch.tensor(gradient is not None, dtype=torch.uint8))
            self.add(f"gradient.{name}", torch.zeros_like(parameter) if gradient is None else gradient.to_dense())

    def add_buckets(self, ddp):
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        for bucket in ddp.reducer._get_zeros_like_grad_buckets():
            self.buckets += "[" + "".join(" " + names[parameter] for parameter in bucket.parameters()) + " ]"
        self.buckets += "\n"

    def save(self, path):
        save_file({name: torch.stack(values) for name, values in self.values.items()}, path, {"buckets": self.buckets, "logging": self.logging})


def initialize(model, tensors, settings):
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name != settings["frozen"])
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            value.copy_(tensors[f"initial.{name}"])
            if dist.get_rank() > 0:
                value.add_(dist.get_rank())


class CpuStream:
    """Also an event. DistributedDataParallel asks for these in mixed precision, and PyTorch has none for the CPU."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait_stream(self, other):
        pass

    def record(self):
        pass

    def wait(self, stream):
        pass


def mixed_precision(settings):
    dtypes = {name: getattr(torch, settings[name]) for name in ("param_dtype", "reduce_dtype", "buffer_dtype") if settings[name]}
    if dtypes:
        torch.Stream = torch.Event = torch.accelerator.current_stream = CpuStream
    return _MixedPrecision(**dtypes) if dtypes else None


def make_optimizer(parameters, settings):
    lr, fused = float(settings["lr"]), settings["optimizer"].endswith("_fused")
    if settings["optimizer"].startswith("sgd"):
        return torch.optim.SGD(parameters, lr=lr, momentum=float(settings["momentum"]), fused=fused)
    if fused:
        optimizer = torch.optim.AdamW if settings["optimizer"] == "adamw_fused" else torch.optim.Adam
        return optimizer(parameters, lr=lr, weight_decay=0.1, fused=True)
    return (CppAdamW if settings["optimizer"] == "adamw" else torch.optim.AdamW)(parameters, lr=lr, weight_decay=0.1)


def loss_of(output, target):
    if target.dtype != torch.long:
        return F.mse_loss(output, target)
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def num_steps(settings, rank, most):
    """With join the data of rank 1 ends before its first step, that of later ranks in the middle."""
    return {0: most, 1: 0}.get(rank, 4 * rank) if settings["join"] else most


def train(case, result):
    tensors = load_file(case)
    with safe_open(case, "pt") as file:
        settings = file.metadata()
    model = NETS[settings["net"]](sparse=True) if settings["sparse"] == "1" else NETS[settings["net"]]()
    initialize(model, tensors, settings)
    cap = float(settings["bucket_cap_mb"]) if settings["bucket_cap_mb"] else None
    caps = [float(mb) for mb in settings["bucket_cap_mb_list"].split()]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, settings["ignored"].split())
    delayed = [(name, model.get_parameter(name)) for name in settings["delayed"].split()]
    ddp = WaitsForDelayedGradients(model, bucket_cap_mb=cap, bucket_cap_mb_list=caps or None, delay_all_reduce_named_params=delayed or None,
                                  param_to_hook_all_reduce=model.first.weight if delayed else None,
                                  mixed_precision=mixed_precision(settings), **{
        name: settings[name] == "1" for name in ("find_unused_parameters", "static_graph", "gradient_as_bucket_view",
                                                 "skip_all_reduce_unused_params", "batched_grad_copy")})
    HOOKS[settings["hook"]](ddp)
    record, optimizer = Record(model), make_optimizer(ddp.parameters(), settings)

    def note_buckets():
        if settings["sparse"] == "0":
            record.add_buckets(ddp)

    note_buckets()
    record.add_state()
    # Kernels round differently for other memory alignments: both sides clone what they take from the file.
    rank, micro_batches = dist.get_rank(), tensors["x"].shape[1]
    for _ in range(int(settings["dropped_passes"])):
        loss_of(ddp(tensors["x"][0, 0, rank].clone()), tensors["y"][0, 0, rank].clone()).backward()
        optimizer.zero_grad()
    with ddp.join(divide_by_initial_world_size=settings["join"] == "initial") if settings["join"] else contextlib.nullcontext():
        for step in range(num_steps(settings, rank, len(tensors["x"]))):
            for micro_batch in range(micro_batches):
                place = (step, micro_batch, rank)
                inputs = [tensors["x"][place].clone()] + [tensors["flags"][place].item()] * (settings["net"] == "branches")
                with ddp.no_sync() if micro_batch + 1 < micro_batches else contextlib.nullcontext():
                    loss = loss_of(ddp(*inputs), tensors["y"][place].clone())
                    record.add("loss", loss)
                    loss.backward()
            if not settings["optimizer"].endswith("_fused"):  # which our DDP lets go in backward
                record.add_gradients()
            optimizer.step()
            optimizer.zero_grad(set_to_none=settings["set_to_none"] == "1")
            record.add_state()
            note_buckets()
    record.add_state()
    record.logging = "".join(f"{name}={value}\n" for name, value in ddp._get_ddp_logging_data().items())
    record.save(result)


def main(cases, results):
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    backend = os.environ.get("DDP_BACKEND", "gloo")
    if backend != "gloo":
        import torchcohort  # noqa: F401
    dist.init_process_group(backend)
    for case in sorted(pathlib.Path(cases).iterdir()):
        train(case, pathlib.Path(results) / f"{case.stem}.python.{dist.get_rank()}.safetensors")
        gc.collect()  # a wrapper in a reference cycle keeps the group, and its threads, alive
        gc.freeze()  # what PyTorch's modules hold stays; walking through it again after each case takes longer than training
    dist.destroy_process_group()
    # PyTorch's Gloo threads may let go of a Python tensor while the interpreter ends, which aborts the process ("terminate
    # called without an active exception").
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
