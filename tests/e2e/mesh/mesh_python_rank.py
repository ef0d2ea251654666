"""What tests/e2e/programs/mesh/mesh_rank.cpp prints, by PyTorch itself."""
import os
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

warnings.filterwarnings("ignore")


def text(numbers):
    return " ".join(str(number) for number in numbers)


def values(tensor):
    return f"{text(tensor.shape)}: {text(tensor.to(torch.long).flatten().tolist())}"


def show(name, mesh):
    coordinate = mesh.get_coordinate()
    groups = mesh.get_all_groups() if coordinate is not None else []
    print(name, mesh, values(mesh.mesh), "size", mesh.size(), "rank", mesh.get_rank(), "at", "None" if coordinate is None else text(coordinate),
          *(f"group {group.group_name} {group.group_desc} {text(dist.get_process_group_ranks(group))} {dist.get_rank(group)}" for group in groups))


def show_error(name, fn):
    try:
        fn()
        print(name, "(no error)")
    except Exception as error:
        print(name, " ".join(str(part) for part in error.args))


def show_tensors(mesh):
    choices = [Replicate(), Shard(0), Shard(-1), _StridedShard(0, split_factor=2), Partial("avg")]
    for first in choices:
        for second in choices:
            # Python does not send shards of a _StridedShard whose sizes differ.
            is_sent = not any(isinstance(one, _StridedShard) for one in (first, second))
            tensor = torch.arange(35, dtype=torch.double).view(7, 5) + (100 * mesh.get_rank() if is_sent else 0)
            sharded = distribute_tensor(tensor, mesh, [first, second], src_data_rank=0 if is_sent else None)
            # Nor does it put all of this one together again.
            is_whole = not (isinstance(first, _StridedShard) and getattr(second, "dim", None) == 0)
            full = values(sharded.full_tensor()) if is_whole else ""
            print("tensor", sharded.placements, values(sharded.to_local()), "full", full, "shards", sharded._spec.num_shards)


def show_errors(mesh, plain, scattered):
    ones = torch.ones(3)
    show_error("too big", lambda: init_device_mesh("cpu", (3, 3)))
    show_error("repeated", lambda: init_device_mesh("cpu", (2, 4), mesh_dim_names=("a", "a")))
    show_error("length", lambda: init_device_mesh("cpu", (2, 4), mesh_dim_names=("a",)))
    show_error("device", lambda: init_device_mesh("cpu:0", (8,)))
    names = {"mesh_dim_names": ("a", "b")}
    show_error("redundant", lambda: init_device_mesh("cpu", (2, 4), **names, backend_override={0: "gloo", "a": "gloo"}))
    show_error("invalid key", lambda: init_device_mesh("cpu", (2, 4), **names, backend_override={5: "gloo", "c": "gloo"}))
    show_error("slice plain", lambda: plain["a"])
    show_error("flatten plain", plain._flatten)
    show_error("name of plain", lambda: plain.get_group("a"))
    show_error("slice", lambda: mesh["pp"])
    show_error("slice two", lambda: mesh["dp", "pp"])
    show_error("order", lambda: mesh["tp", "dp"])
    show_error("overlap", lambda: mesh["dp", "dp_cp"])
    show_error("slice of slice", lambda: mesh["dp"]["dp_cp"])
    show_error("group", mesh.get_group)
    show_error("group name", lambda: mesh.get_group("pp"))
    show_error("group index", lambda: mesh.get_group(3))
    show_error("size index", lambda: mesh.size(3))
    show_error("local rank", mesh.get_local_rank)
    show_error("flatten as axis", lambda: mesh["cp", "tp"]._flatten("dp"))
    show_error("flatten again", lambda: mesh["cp", "tp"]._flatten("dp_cp"))
    show_error("unflatten index", lambda: mesh._unflatten(3, (2,), ("a",)))
    show_error("unflatten name", lambda: mesh._unflatten("pp", (2,), ("a",)))
    show_error("unflatten length", lambda: mesh._unflatten(0, (2, 1), ("a",)))
    show_error("unflatten sizes", lambda: mesh._unflatten(0, (2, 3), ("a", "b")))
    show_error("concatenate others", lambda: DeviceMesh._concatenate([mesh["dp"], scattered]))
    show_error("concatenate overlap", lambda: DeviceMesh._concatenate([mesh["dp"], mesh["dp", "cp"]]))
    show_error("from group mesh", lambda: DeviceMesh.from_group(mesh.get_group("dp"), "cpu", [0, 99]))
    pair = [mesh.get_group("dp"), mesh.get_group("cp")]
    show_error("from no groups", lambda: DeviceMesh.from_group([], "cpu"))
    show_error("from groups", lambda: DeviceMesh.from_group(pair, "cpu"))
    show_error("from groups names", lambda: DeviceMesh.from_group(pair, "cpu", torch.arange(4)))
    show_error("from groups dims", lambda: DeviceMesh.from_group(pair, "cpu", torch.arange(4), mesh_dim_names=("a", "b")))
    show_error("placements", lambda: distribute_tensor(ones, plain, [Shard(0)]))
    rows = distribute_tensor(torch.ones(8, 3), plain, [Shard(0), Replicate()])
    show_error("DTensor as it lies", lambda: print(
        "the same " if distribute_tensor(rows, plain, [Shard(0), Replicate()]) is rows else "another ", end=""))
    show_error("DTensor of other placements", lambda: distribute_tensor(rows, plain, [Replicate(), Shard(1)]))
    show_error("DTensor of another mesh", lambda: distribute_tensor(rows, mesh["dp"], [Shard(0)]))
    leaf = torch.ones(8, requires_grad=True)
    show_error("no leaf", lambda: distribute_tensor(leaf * 2, plain, [Shard(0), Replicate()]))
    tensor = distribute_tensor(leaf, plain)
    show_error("requires grad", lambda: print(f"{tensor.requires_grad:d}{tensor.is_leaf:d}{tensor.placements} ", end=""))
    show_error("product", lambda: distribute_tensor(ones, plain, [Partial("product"), Replicate()]))


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
show("mesh", mesh)
for name in ("dp", "cp", "tp"):
    show(name, mesh[name])
show("dp cp", mesh["dp", "cp"])
show("dp tp", mesh["dp", "tp"])
show("dp_cp", mesh["dp", "cp"]._flatten())
show("dp_tp", mesh["dp", "tp"]._flatten("far"))
show("flattened slice", mesh["far"])
show("flattened and axis", mesh["dp_cp", "tp"])
show("everything", mesh._flatten("everything"))
show("unflattened", mesh["dp_cp", "tp"]._unflatten("dp_cp", (1, 4), ("x", "y")))
show("unflattened far", mesh["far"]._unflatten(0, (2, 2), ("v", "w")))
show("concatenated", DeviceMesh._concatenate([mesh["dp"], mesh["tp"]]))
plain = init_device_mesh("cpu", (2, 4))
show("plain", plain)
show("one", DeviceMesh("cpu", list(range(8))))
show("ones", init_device_mesh("cpu", (1, 8, 1)))
show("from group", DeviceMesh.from_group(mesh.get_group("dp"), "cpu"))
scattered = DeviceMesh("cpu", [[0, 3, 4, 7], [1, 2, 5, 6]], mesh_dim_names=("a", "b"))
show("scattered", scattered)
show("few", DeviceMesh("cpu", [1, 3]))
show_tensors(plain)
show_errors(mesh, plain, scattered)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py
