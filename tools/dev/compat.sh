#!/usr/bin/env bash
# Builds Cohort with GCC against the other supported releases of LibTorch and runs the tests that need no Python. (`make test`
# builds with Clang if it is installed.)
#
#   tools/dev/compat.sh [OPTION] [RELEASE ...]   default: 2.11.0 2.12.0 cuda-2.11.0; the newest release is what `make test` uses
#     --fetch-only     enough for tests/e2e/store/store_releases_test.py
#     --compile-only   the compiler only reads all sources that include LibTorch's headers; .ci/run does this
#
# cuda-RELEASE is the CUDA wheel with all its dependencies (4.6 GB): Cohort's NCCL backend is compiled, linked and loaded. Without
# a GPU its tests show that the backend exists, and that using it reports what is missing. Each release is fetched once with pip
# into build/compat/RELEASE (about 0.6 GB: headers and the CPU libraries only). Takes a CPU wheel if pip's sources or PyTorch's
# CPU index have one, else the default CUDA wheel, which runs on the CPU, too, with the two CUDA libraries that libtorch_cpu.so
# needs beside it.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD/build/compat
fetch_only=0 compile_only=0
case ${1:-} in
  --fetch-only) fetch_only=1; shift ;;
  --compile-only) compile_only=1; shift ;;
esac
releases=("$@")
((${#releases[@]})) || releases=(2.11.0 2.12.0 cuda-2.11.0)
pip=(.venv/bin/pip)
torch_cpu_index=https://download.pytorch.org/whl/cpu

say() { echo "compat: $*" >&2; }

download_wheel() {  # release folder
  local options=(download -q --no-deps -d "$2")
  compgen -G "$2/torch-$1*.whl" >/dev/null && return
  say "fetching LibTorch $1"
  "${pip[@]}" "${options[@]}" "torch==$1+cpu" 2>/dev/null ||
    "${pip[@]}" "${options[@]}" --retries 1 --timeout 15 --index-url "$torch_cpu_index" "torch==$1+cpu" 2>/dev/null ||
    "${pip[@]}" "${options[@]}" "torch==$1" ||
    { say "error: pip found no wheel of torch $1 for this Python"; return 1; }
}

unpack_libraries() {  # wheel folder
  .venv/bin/python - "$1" "$2" <<'PY'
import re, sys, zipfile
wheel, folder = sys.argv[1:]
wanted = re.compile(r"torch/include/|torch/lib/lib(c10|torch_cpu)\.so$|torch/lib/lib(gomp|omp|iomp|arm_compute|openblas)[^/]*\.so"
                    r"|torch\.libs/")
with zipfile.ZipFile(wheel) as archive:
    archive.extractall(folder, [name for name in archive.namelist() if wanted.match(name)])
PY
}

# libtorch_cpu.so of a CUDA wheel is linked with libcudart and libcupti; its run path begins with its own folder.
add_cuda_libraries() {  # folder of libtorch_cpu.so
  local library package found
  while read -r library; do
    [[ -e $1/$library ]] && continue
    found=$(find -L /usr/local/cuda*/ -name "$library" -print -quit 2>/dev/null || true)
    if [[ -z $found ]]; then
      case $library in
        libcudart.so.12) package=nvidia-cuda-runtime-cu12 ;;
        libcupti.so.12) package=nvidia-cuda-cupti-cu12 ;;
        libcudart.so.*) package="nvidia-cuda-runtime==${library##*.}.*" ;;
        libcupti.so.*) package="nvidia-cuda-cupti==${library##*.}.*" ;;
        *) say "error: LibTorch needs $library, and no package is known to hold it"; return 1 ;;
      esac
      say "fetching $package for $library"
      "${pip[@]}" install -q --no-deps --target "$1/../../cuda" "$package" || return 1
      found=$(find "$1/../../cuda" -name "$library" -print -quit)
      [[ -n $found ]] || { say "error: $package has no $library"; return 1; }
    fi
    ln -sf "$found" "$1/$library"
  done < <(readelf -d "$1/libtorch_cpu.so" | sed -n 's/.*(NEEDED).*\[\(libcu[^]]*\)\].*/\1/p')
}

fetch() {  # release
  local folder=$root/$1
  [[ -f $folder/complete ]] && return
  if [[ $1 == cuda-* ]]; then
    say "fetching LibTorch $1"
    mkdir -p "$folder" &&
      "${pip[@]}" install -q --no-compile --target "$folder/site" "torch==${1#cuda-}" &&
      touch "$folder/complete"
    return
  fi
  mkdir -p "$folder/wheels" &&
    download_wheel "$1" "$folder/wheels" &&
    unpack_libraries "$folder"/wheels/torch-*.whl "$folder" &&
    add_cuda_libraries "$folder/torch/lib" &&
    rm -rf "$folder/wheels" &&
    touch "$folder/complete"
}

# Compiles the sources of the layers that include LibTorch, without objects: only the headers can differ between releases. Without
# optimization GCC does not see that TORCH_CHECK(false) never returns.
compile() {  # release
  local build=$root/$1/compile
  cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O0 -Wno-return-type" -DCOHORT_TORCH_ROOT="$root/$1/torch" \
    -DCOHORT_BUILD_TESTS=OFF -DCOHORT_BUILD_EXAMPLES=OFF -DCOHORT_BUILD_BENCHMARKS=OFF -DCOHORT_BUILD_PYTHON=OFF >/dev/null || return 1
  .venv/bin/python - "$build" <<'PY' || return 1
import json, pathlib, shlex, sys
build = pathlib.Path(sys.argv[1])
headers, commands = [], []
for entry in json.loads((build / "compile_commands.json").read_text()):
    words = shlex.split(entry["command"])
    if not any("torch/include" in word for word in words):
        continue
    output = words[words.index("-o") + 1]
    if output.endswith(".gch"):
        headers.append(output)
    else:
        commands.append(f"cd {shlex.quote(entry['directory'])} && {entry['command']} -fsyntax-only")
(build / "precompiled.txt").write_text("\n".join(headers))
(build / "commands.txt").write_text("\n".join(commands))
PY
  [[ -s $build/commands.txt ]] || { say "error: no source in $build includes LibTorch"; return 1; }
  say "compiling $(grep -c . "$build/commands.txt") sources with the headers of LibTorch $1"
  xargs -r -a "$build/precompiled.txt" ninja -C "$build" &&
    CCACHE_DISABLE=1 xargs -d '\n' -a "$build/commands.txt" -n 1 -P "$CMAKE_BUILD_PARALLEL_LEVEL" bash -c
}

export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
failed=0
summary=()
for release in "${releases[@]}"; do
  begin=$SECONDS
  if ((fetch_only)); then
    if fetch "$release"; then verdict="there"; else verdict="FAILED" failed=1; fi
    summary+=("LibTorch $release: $verdict ($((SECONDS - begin)) s)")
    continue
  fi
  if ((compile_only)); then
    if fetch "$release" && compile "$release"; then verdict="compiles"; else verdict="FAILED" failed=1; fi
    summary+=("LibTorch $release: $verdict ($((SECONDS - begin)) s)")
    continue
  fi
  torch=$root/$release/torch targets=() only=()
  if [[ $release == cuda-* ]]; then
    torch=$root/$release/site/torch
    targets=(--target cohort cohort_comm_test)
    only=(-R '^comm\.(Nccl|Device|BackendConfig|Collectives)')
  fi
  if fetch "$release" &&
     cmake -S . -B "$root/$release/build" -G Ninja -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Release -DCOHORT_TORCH_ROOT="$torch" \
       -DCOHORT_BUILD_EXAMPLES=OFF -DCOHORT_BUILD_BENCHMARKS=OFF -DCOHORT_BUILD_PACKAGING_TESTS=OFF &&
     cmake --build "$root/$release/build" "${targets[@]}" &&
     ctest --test-dir "$root/$release/build" -LE "slow|python" "${only[@]}" -j "$(nproc)" --output-on-failure |
       tee "$root/$release/ctest.txt"; then
    verdict=$(grep -E 'tests passed' "$root/$release/ctest.txt")
  else
    verdict="FAILED"
    failed=1
  fi
  summary+=("LibTorch $release: $verdict ($((SECONDS - begin)) s)")
done
printf '%s\n' "" "${summary[@]}"
exit $failed
