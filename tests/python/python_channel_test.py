"""Tensors between processes without a copy, from Python: to Python and to C++."""
import os
import signal
import subprocess
import threading
import time
import uuid

import pytest
import torch
from ranks import BUILD

import torchcohort
from torchcohort import TensorChannel, TensorListener

PEER = BUILD / "bin" / "tests" / "channel_peer"


def fork(function):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    return pid


def exit_code(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def num_fds():
    return len(os.listdir("/proc/self/fd"))


def test_cpp_and_python_use_one_memory():
    name = uuid.uuid4().hex
    listener = TensorListener(name)
    peer = subprocess.Popen([PEER, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    channel = listener.accept(60)
    assert channel.peer_pid == peer.pid
    whole = torch.arange(12.0).view(3, 4)
    channel.send(whole[:, ::2])
    own = channel.receive()
    assert whole.tolist() == [[0, 1, 4, 3], [8, 5, 12, 7], [16, 9, 20, 11]]
    assert own.tolist() == [[0, 3], [1, 4], [2, 5]] and own.stride() == (1, 3)
    own.fill_(7)
    channel.send(torch.zeros(0))
    out, err = peer.communicate(timeout=300)
    assert (peer.returncode, out) == (0, "[3, 2][4, 2] 42\n"), err


def test_a_module_in_forked_children():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    before = num_fds()
    torchcohort.share_memory(model)
    assert num_fds() == before + 1

    def child():
        with torch.no_grad():
            model[0].weight.fill_(5)
            model[1].running_mean.fill_(6)

    assert exit_code(fork(child)) == 0
    assert model[0].weight.tolist() == [[5.0] * 3] * 3 and model[1].running_mean.tolist() == [6.0] * 3
    del model, child
    assert num_fds() == before


def test_python_to_python():
    near, far = TensorChannel.make_pair()
    parameter = torch.nn.Parameter(torch.ones(4))

    def child():
        near.close()
        received = far.receive()
        assert received.requires_grad and received.is_leaf
        with torch.no_grad():
            received.mul_(3)
        far.send(torch.full((2,), 8, dtype=torch.bfloat16))

    pid = fork(child)
    far.close()
    near.send(parameter)
    answer = near.receive()
    assert exit_code(pid) == 0
    assert parameter.tolist() == [3.0] * 4 and answer.tolist() == [8, 8] and answer.dtype == torch.bfloat16
    with pytest.raises(torch.distributed.DistNetworkError, match="the other end is closed, and all that it has sent was received"):
        near.receive()


def test_errors():
    near, far = TensorChannel.make_pair()
    with pytest.raises(ValueError, match=r"^\[cohort\] send: the tensor has layout Sparse, and only dense tensors can be in shared memory"):
        near.send(torch.eye(2).to_sparse())
    with pytest.raises(ValueError, match=r"^\[cohort\] send: the tensor was shared by Tensor::share_memory_"):
        near.send(torch.ones(2).share_memory_())
    with pytest.raises(ValueError, match=r"^\[cohort\] the name of a tensor channel has 1 to 64 bytes, got 0"):
        TensorListener("")
    name = uuid.uuid4().hex
    with pytest.raises(torch.distributed.DistNetworkError, match=rf'^\[cohort\] no process listens on tensor channel "{name}" after 10 ms\n'):
        TensorChannel.connect(name, timeout=0.01)
    assert not far.poll() and not far.poll(0.01)


def test_other_threads_run_and_ctrl_c_ends_a_wait():
    near, _far = TensorChannel.make_pair()
    pid = os.getpid()
    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=lambda: (time.sleep(1), os.kill(pid, signal.SIGINT))).start()
        near.receive()
