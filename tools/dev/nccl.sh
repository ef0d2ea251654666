#!/usr/bin/env bash
# Compiles the NCCL backend with the headers of NCCL and CUDA, on a machine without both and with a LibTorch without CUDA: CI can
# only check the object. `make compat` links and loads it, with a CUDA build of LibTorch (4.6 GB).
#
# PyTorch's CPU wheel contains ProcessGroupNCCL.hpp and c10/cuda. pip installs only the headers of NCCL and CUDA into
# build/compat/nccl: 310 MB to fetch, nearly all of it NCCL's library, of which 20 MB are kept. tools/dev/cuda_stubs declares
# the few types of cuBLAS, cuSPARSE and cuSOLVER (1 GB) that LibTorch's headers name, and that we do not use.
set -euo pipefail
cd "$(dirname "$0")/../.."
headers=$PWD/build/compat/nccl
# The versions that PyTorch 2.13 is built with.
packages=("nvidia-nccl-cu13==2.29.7" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-crt==13.0.*" "nvidia-cuda-cccl==13.0.*")

say() { echo "nccl: $*" >&2; }

if [[ ! -e $headers/complete ]]; then
  say "fetching ${packages[*]}"
  rm -rf "$headers"
  .venv/bin/pip download -q --no-deps -d "$headers/wheels" "${packages[@]}" >&2
  .venv/bin/python - "$headers" <<'PY'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
for wheel in folder.glob("wheels/*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if "/include/" in name])
PY
  rm -rf "$headers/wheels"
  touch "$headers/complete"
fi
torch=$(.venv/bin/python -c 'import importlib.util as u, os; print(os.path.dirname(u.find_spec("torch").origin))')
source=$(git ls-files '*/nccl_backend.cpp')
includes=(-I. -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include")
for folder in $(git ls-files '*/forward_declarations/*' | sed 's,/forward_declarations/.*,/forward_declarations,' | sort -u) \
              "$headers"/nvidia/*/include tools/dev/cuda_stubs; do
  includes+=(-isystem "$folder")
done
"${CXX:-c++}" -std=c++20 -O0 -fPIC -Wall -Wextra -Werror -Wno-missing-field-initializers -DUSE_DISTRIBUTED -DUSE_C10D_GLOO \
  "${includes[@]}" -c "$source" -o build/compat/nccl/nccl_backend.o
# The functions that a LibTorch with CUDA must have to link it.
needed=$(nm -C --undefined-only build/compat/nccl/nccl_backend.o | grep -c 'c10d::ProcessGroupNCCL::')
version=$(sed -n 's/#define NCCL_\(MAJOR\|MINOR\|PATCH\) *//p' "$headers"/nvidia/nccl/include/nccl.h | paste -sd.)
echo "nccl: $source compiles with NCCL $version; it needs $needed functions of ProcessGroupNCCL, ok"
