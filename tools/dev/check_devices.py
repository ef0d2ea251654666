#!/usr/bin/env python3
"""The library asks whether a tensor is on the CPU, never whether it is on CUDA: code that names one type of accelerator excludes
the others. Allowed: NCCL's folder, the table of backends, and PyTorch's lists of devices with foreach and fused kernels."""
import pathlib
import re
import sys

from sources import ROOT, files, report, without_comments

ALLOWED = ["cohort/comm/nccl/", "cohort/comm/registry/backends.cpp", "cohort/parallel/optim/clip_grad.cpp",
           "cohort/parallel/optim/fused_update.cpp"]
NAMES = re.compile(r"\b(is_cuda|kCUDA|DeviceType::(?:CUDA|XPU|HIP|MPS|PrivateUse1)|kPrivateUse1|hasCUDA|getNumGPUs|getCUDAHooks|[cC]udaStream|CUDAStream"
                   r"|CUDAEvent|CUDAGuard)\b")


def main(root=ROOT):
    errors, paths = [], files(root, "cohort/*.cpp", "cohort/*.h")
    for path in paths:
        name = path.relative_to(root).as_posix()
        if any(name.startswith(allowed) for allowed in ALLOWED):
            continue
        for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1):
            if match := NAMES.search(line):
                errors.append(f"{name}:{number}: {match.group(1)} is for one type of accelerator; ask for !is_cpu(), or see "
                              "cohort/comm/backend/accelerator.h")
    report("devices", errors, f"{len(paths)} files")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
