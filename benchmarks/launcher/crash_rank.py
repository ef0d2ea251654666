"""crash_rank.cpp in Python, on Gloo."""
import os
import sys
import time

import torch
import torch.distributed as dist


def write_time(what):
    with open(sys.argv[1], "a") as file:
        file.write(f"{what} {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}\n")


dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
assert value.item() == 2
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] != "1":
        time.sleep(1000)
    write_time("crash")
    os._exit(1)
write_time("done")
dist.destroy_process_group()
os._exit(0)  # PyTorch's Gloo threads may abort while the interpreter ends
