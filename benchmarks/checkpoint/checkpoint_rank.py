"""The Python ranks of the question "checkpoint": torch.save, torch.load and torch.distributed.checkpoint.

Arguments: the number of ranks, the rank, the pipe that commands come from, an init method. Commands as those of
checkpoint_rank.cpp.
"""
import ctypes
import mmap
import os
import pathlib
import shutil
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from training_rank import answer_commands, leave  # noqa: E402

ROWS, COLUMNS = 1024, 1024
M_MMAP_THRESHOLD, LEAST_MAPPED = -3, 128 << 10


class Case:
    def __init__(self, kind, mebibytes, folder, rank, num_ranks):
        self.kind, self.rank, self.mebibytes = kind, rank, int(mebibytes)
        self.path = pathlib.Path(folder) / kind
        self.sync = kind.endswith("-fsync")
        tensors = {f"layer.{i}.weight": torch.full((ROWS, COLUMNS), float(i)) for i in range(int(mebibytes) // 4)}
        if num_ranks > 1:
            mesh = init_device_mesh("cpu", (num_ranks,))
            tensors = {name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in tensors.items()}
        self.tensors = tensors
        if "load" in kind or kind == "mapped":
            self.save()

    def save(self):
        if self.kind.startswith(("sharded", "async")):
            dcp.save(self.tensors, storage_writer=dcp.FileSystemWriter(self.path, sync_files=self.sync))
            return
        torch.save(self.tensors, self.path)
        if self.sync:
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())

    def prepare(self):
        """See checkpoint_rank.cpp."""
        if self.kind == "load":
            ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LEAST_MAPPED)
        mmap.mmap(-1, self.mebibytes << 21, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()
        if dist.is_initialized():
            dist.barrier()

    def step(self):
        """Returns the seconds of the measured part."""
        begin = time.perf_counter()
        if self.kind == "load":
            loaded = torch.load(self.path)
        elif self.kind == "mapped":
            loaded = torch.load(self.path, mmap=True)
        elif self.kind == "sharded-load":
            loaded = self.tensors
            dcp.load(loaded, storage_reader=dcp.FileSystemReader(self.path))
        elif self.kind == "async-fsync":
            future = dcp.async_save(self.tensors, storage_writer=dcp.FileSystemWriter(self.path, sync_files=True))
            seconds = time.perf_counter() - begin
            future.result()
            return seconds
        else:
            self.save()
            return time.perf_counter() - begin
        seconds = time.perf_counter() - begin
        last = list(loaded.values())[-1]
        assert float((last.to_local() if hasattr(last, "to_local") else last)[0, 0]) == len(loaded) - 1
        return seconds

    def clean(self):
        if "load" in self.kind or self.kind == "mapped":
            return
        if dist.is_initialized():
            dist.barrier()
        if self.rank == 0:
            shutil.rmtree(self.path) if self.path.is_dir() else self.path.unlink(missing_ok=True)
        if dist.is_initialized():
            dist.barrier()

    def run_steps(self, num_warm, num_steps):
        seconds = 0.0
        for step in range(num_warm + num_steps):
            self.prepare()
            taken = self.step()
            seconds += taken if step >= num_warm else 0.0
            self.clean()
        return f"{seconds * 1e3 / num_steps:.6f}"


def main():
    num_ranks, rank, commands, init_method = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1 if num_ranks > 1 else 2)
    if num_ranks > 1:
        dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=num_ranks)
    answer_commands(commands, lambda _, kind, mebibytes, folder: Case(kind, mebibytes, folder, rank, num_ranks),
                    lambda case: len(case.tensors))
    leave()


if __name__ == "__main__":
    main()
