"""model_parallel_python_rank.py RESULT: what programs/parallel/model_parallel_rank.cpp computes, by PyTorch's DTensor, loss_parallel and
ring attention, whose templates take the CPU's kernel."""
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental._context_parallel import _attention as cp
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module

warnings.simplefilter("ignore")
results = {}


def keep(name, tensor):
    results[name] = (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach().contiguous().clone()


def drawn(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).float()


def own_chunk(whole, dim, mesh):
    return distribute_tensor(whole, mesh, [Shard(dim)], src_data_rank=None).to_local().clone()


def run_layers(name, hidden, shares_positions, mesh):
    model = torch.nn.Sequential(torch.nn.Linear(6, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 5))
    with torch.no_grad():
        for parameter, seed in zip(model.parameters(), (1, 2, 3, 4)):
            parameter.copy_(drawn(parameter.shape, seed))
    outside = Shard(1) if shares_positions else Replicate()
    parallelize_module(model, mesh, {"0": ColwiseParallel(input_layouts=outside, use_local_output=False),
                                     "2": RowwiseParallel(output_layouts=outside)})
    part = (lambda whole: own_chunk(whole, 1, mesh)) if shares_positions else (lambda whole: whole)
    x = part(drawn((2, 8, 6), 5)).requires_grad_()
    y = model(x)
    y.backward(part(drawn((2, 8, 5), 6)))
    keep(f"{name}.y", y)
    keep(f"{name}.x.grad", x.grad)
    for layer, index in (("up", 0), ("down", 2)):
        keep(f"{name}.{layer}.weight.grad", model[index].weight.grad)
        bias = model[index].bias.grad
        keep(f"{name}.{layer}.bias.grad", bias.full_tensor() if layer == "down" else bias)


def run_embedding(rows, mesh):
    table = torch.nn.Embedding(rows, 4)
    with torch.no_grad():
        table.weight.copy_(drawn((rows, 4), 7))
    parallelize_module(table, mesh, RowwiseParallel(input_layouts=Replicate()))
    y = table((torch.arange(24) % rows).view(3, 8))
    y.backward(drawn((3, 8, 4), 8))
    keep(f"embedding{rows}.y", y)
    keep(f"embedding{rows}.grad", table.weight.grad.redistribute(placements=[Shard(0)]))


def run_loss(mesh):
    for reduction in ("mean", "sum", "none"):
        for ignored in (-100, 3):
            logits = own_chunk(drawn((6, 12), 9) * 4, 1, mesh).requires_grad_()
            with loss_parallel():
                loss = F.cross_entropy(DTensor.from_local(logits, mesh, [Shard(1)]), torch.arange(1, 7), reduction=reduction,
                                       ignore_index=ignored)
                loss.backward(torch.ones_like(loss))
            keep(f"loss.{reduction}{ignored}", loss)
            keep(f"loss.{reduction}{ignored}.grad", logits.grad)


def attend(query, key, value, is_causal=False, **_):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal)


def attend_backward(grad_out, query, key, value, out, logsumexp, is_causal=False, **_):
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, query, key, value, out, logsumexp, 0.0, is_causal)


def run_attention(is_causal, load_balance, method, name, mesh):
    cp.set_rotate_method(method)
    cp._cp_options.enable_load_balance = load_balance
    size = mesh.size()

    def part(seed):
        balancer = cp._create_default_load_balancer(16, size, "cpu") if load_balance else None
        return cp._context_parallel_buffers(mesh, [drawn((2, 3, 16, 8), seed)], [2], balancer)[0].contiguous()
    q, k, v, cotangent = (part(seed) for seed in (10, 11, 12, 13))
    group = mesh.get_group()
    out, lse = cp._templated_ring_attention(group, 2, attend, q, k, v, is_causal=is_causal)
    gradients = cp._templated_ring_attention_backward(group, 2, attend_backward, cotangent, "grad_out", q, k, v, out, lse, is_causal)
    keep(f"{name}.out", out)
    for i, gradient in enumerate(gradients):
        keep(f"{name}.grad{i}", gradient)


def run_buffers(mesh):
    for load_balance in (True, False):
        name = "buffers.balanced" if load_balance else "buffers.plain"
        cp._cp_options.enable_load_balance = load_balance
        tokens, positions = drawn((2, 16), 14), drawn((16, 3), 15)
        with cp.context_parallel(mesh, buffers=[tokens, positions], buffer_seq_dims=[1, 0], no_restore_buffers={positions}):
            keep(f"{name}.tokens", tokens)
        keep(f"{name}.positions", positions)
        keep(f"{name}.restored", tokens)
        cp._cp_options.enable_load_balance = load_balance
        keep(f"{name}.whole", cp.context_parallel_unshard(mesh, [drawn((2, 4, 3), 16 + mesh.get_rank())], [1])[0])


def main(result):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for hidden in (8, 7):
        run_layers(f"mlp{hidden}", hidden, False, mesh)
    run_layers("sequence", 8, True, mesh)
    for rows in (12, 10):
        run_embedding(rows, mesh)
    run_loss(mesh)
    run_buffers(mesh)
    for method in ("allgather", "alltoall"):
        run_attention(True, True, method, f"causal.balanced.{method}", mesh)
        run_attention(True, False, method, f"causal.plain.{method}", mesh)
        run_attention(False, False, method, f"full.plain.{method}", mesh)
    save_file(results, result)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(os.fspath(sys.argv[1]))
