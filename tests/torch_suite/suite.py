"""PyTorch's own tests of a distributed backend, as they lie in its wheel, made to run against a backend of any name.

The suite decides by the name of the backend what to run. Its decorators decide while it is imported, so it is imported under
the name "gloo"; after that its BACKEND is the real name, which also equals "gloo" where the body of a test asks. Its lists of
the backends that the profiler knows get the name as well, and spans of the engine beneath it are shown under the backend's name.
Not one line of the tests themselves is changed.
"""
import os
import signal
import sys
import unittest

import torch
import torch.distributed as dist

import cuda_as_cpu

MODES = ("cpu", "cuda-as-cpu")
# Who makes the profiler's spans, "shm:all_reduce", of groups on a backend that is named otherwise.
ENGINES = {"cohort": "shm", "gloo-renamed": "gloo"}
MODULE = "torch.testing._internal.distributed.distributed_test"
SECONDS_PER_TEST = 100


class TreatedAsGloo(str):
    """The name of a backend, which the suite's `BACKEND == "gloo"` takes for Gloo. A derived string is an ordinary one."""

    def __eq__(self, other):
        return str.__eq__(self, other) or str.__eq__("gloo", other)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def register_renamed_gloo():
    """Stock Gloo under another name: shows what depends on the name alone."""

    def create(store, rank, size, timeout):
        return dist.ProcessGroupGloo(store, rank, size, timeout)

    dist.Backend.register_backend("gloo-renamed", create, devices=["cpu"])


def register(backend):
    if backend == "gloo-renamed":
        register_renamed_gloo()
    elif backend != "gloo":
        import torchcohort  # noqa: F401  registers "cohort" and "shm"


def prepare_environment(world_size):
    """What the suite reads while it is imported."""
    os.environ["BACKEND"] = "gloo"
    os.environ["WORLD_SIZE"] = str(world_size)
    os.environ["INIT_METHOD"] = "file://set-for-each-test"
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(SECONDS_PER_TEST)


def load(backend, world_size, mode):
    """The class of the tests, and the names of those that belong to the mode. Once per process: the suite is one module."""
    assert MODULE not in sys.modules, "the suite is imported once per process"
    prepare_environment(world_size)
    from torch.testing._internal import common_distributed

    common_distributed.TIMEOUT_OVERRIDE.clear()
    marked = cuda_as_cpu.install_decorators(common_distributed)
    __import__(MODULE)
    suite = sys.modules[MODULE]
    os.environ["BACKEND"] = backend
    suite.BACKEND = TreatedAsGloo(backend)
    for known in (suite.PROFILING_SUPPORTED_BACKENDS, suite.CUDA_PROFILING_SUPPORTED_BACKENDS,
                  suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        known.append(backend)
    show_spans_of_engine(suite, backend)
    cases = make_cases(suite, mode)
    names = [name for name in unittest.TestLoader().getTestCaseNames(cases)
             if marked(getattr(cases, name)) == (mode == "cuda-as-cpu")]
    return cases, names


def show_spans_of_engine(suite, backend):
    """The tests look for spans of the group's backend; those of its engine are shown under that name."""
    find, prefix = suite.get_profiling_event, f"{ENGINES.get(backend, backend)}:"

    def get_profiling_event(event_name, profiler, *args, **kwargs):
        is_kineto = isinstance(profiler, torch.profiler.profile)
        for event in profiler.events() if is_kineto else profiler.function_events:
            if event.name.startswith(prefix):
                event.name = f"{backend}:{event.name[len(prefix):]}"
        return find(event_name, profiler, *args, **kwargs)

    suite.get_profiling_event = get_profiling_event


def crashes(exit_codes, raised):
    """In the suite's words: the ranks that have ended by more than an exception, or by the suite's SIGTERM after another's."""
    return "".join(f"Process {rank} exited with error code {code} and exception:\nnone: it has crashed\n"
                   for rank, code in enumerate(exit_codes) if code not in (0, None, raised, -signal.SIGTERM))


def make_cases(suite, mode):
    class TestBackend(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            suite.INIT_METHOD = os.environ["INIT_METHOD"]
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, *args, **kwargs):
            if mode == "cuda-as-cpu":
                cuda_as_cpu.install(suite)
            super()._run(*args, **kwargs)

        def _check_return_codes(self, fn, elapsed_time):
            """The suite looks at rank 0 alone, and at crashes not at all where a rank has raised; here no rank may crash."""
            codes = [process.exitcode for process in self.processes]
            try:
                super()._check_return_codes(fn, elapsed_time)
            except RuntimeError as error:
                raise RuntimeError(str(error) + crashes(codes, self.TEST_ERROR_EXIT_CODE)) from None
            if any(codes) and fn not in self.skip_return_code_checks:
                raise RuntimeError(f"The ranks ended with exit codes {codes}, not all with 0.")

    return TestBackend
