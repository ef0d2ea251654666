"""Our store beside those of the other supported releases of LibTorch, both ways. `tools/dev/compat.sh --fetch-only 2.11.0 2.12.0`
(or `make compat`) fetches them, 0.6 GB each; until then these tests are skipped."""
import subprocess
import sys

import pytest

from harness import BUILD, SOURCE
from store_test import PYTHON_CALLS, OurServer, PyTorchsServer, calls

pytestmark = pytest.mark.tier_all  # it needs other releases of PyTorch

RELEASES = ["2.11.0", "2.12.0"]


@pytest.fixture(scope="module", params=RELEASES)
def release(request):
    if not (BUILD / "compat" / request.param / "complete").exists():
        pytest.skip(f"LibTorch {request.param} is not in {BUILD}/compat: tools/dev/compat.sh --fetch-only {request.param}")
    return request.param


@pytest.fixture(scope="module")
def torch_program(release):
    """store_calls_torch.cpp with this release's headers and libraries; kept until the source or the release changes."""
    folder = BUILD / "compat" / release
    source = SOURCE / "tests" / "e2e" / "programs" / "store" / "store_calls_torch.cpp"
    program = folder / "store_calls_torch"
    inputs = [source, source.with_name("store_calls.h"), folder / "complete"]
    if not program.exists() or program.stat().st_mtime < max(each.stat().st_mtime for each in inputs):
        include, library = folder / "torch" / "include", folder / "torch" / "lib"
        subprocess.run(["g++", "-std=c++20", "-O0", "-w", f"-I{SOURCE}", f"-isystem{include}",
                        f"-isystem{include}/torch/csrc/api/include", source, "-o", program, f"-L{library}", "-ltorch_cpu", "-lc10",
                        f"-Wl,-rpath,{library}", "-Wl,--unresolved-symbols=ignore-in-shared-libs"], check=True, timeout=600)
    return program


@pytest.fixture(scope="module")
def reference():
    with PyTorchsServer() as server:
        return calls([sys.executable, PYTHON_CALLS], server)


class ReleasesServer:
    def __init__(self, program):
        self.program = program

    def __enter__(self):
        self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        self.process.communicate(timeout=300)


def without_barriers(said):
    return "".join(line for line in said.splitlines(keepends=True) if "barrier" not in line)


def test_a_releases_client_on_our_server(torch_program, reference, release):
    with OurServer() as server:
        said = calls([torch_program], server)
    # 2.11's client has no barrier.
    assert said == (without_barriers(reference) if release == "2.11.0" else reference)


def test_our_client_on_a_releases_server(torch_program, reference, programs, release):
    with ReleasesServer(torch_program) as server:
        said = calls([programs / "store_calls"] + (["--no-barrier"] if release == "2.11.0" else []), server)
    assert said == (without_barriers(reference) if release == "2.11.0" else reference)
