"""Python ranks without the seconds that each needs to load PyTorch: a server of this worker has it loaded, and forks them.

`start(argv, env)` is for scripts that know nothing of it: the child runs the script as its main module, with the arguments, variables
and output of a process of its own. What a process reads while it starts must be the same for all: see can_serve().
"""
import array
import atexit
import json
import os
import pathlib
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

MODULES = ["torch", "torch.distributed", "torch.distributed.tensor.parallel", "torch.distributed.fsdp", "torch.nn.parallel", "torch.distributed.run", "torch.distributed.launch",
           "safetensors.torch"]
# Read by libraries as they are loaded.
FIXED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
READ_AT_START = ("LD_", "PYTHON", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "ATEN_", "TORCH_", "PYTORCH_")


def can_serve(argv, env):
    """A script of this Python, whose environment differs from the server's in nothing that is read at the start."""
    if len(argv) < 2 or str(argv[0]) != sys.executable or not str(argv[1]).endswith(".py"):
        return False
    ours, theirs = dict(os.environ, **FIXED), {**FIXED, **env}
    names = {name for name in {*ours, *theirs} if name.startswith(READ_AT_START) and name != "PYTHONPATH"}
    return all(ours.get(name) == theirs.get(name) for name in names)


class Rank:
    """A forked rank, with the part of subprocess.Popen's interface that run_ranks() uses."""

    def __init__(self, channel, outputs):
        self._channel, self._outputs = channel, outputs
        self._lines = b""
        self.pid = self._number(None)
        self.returncode = None

    def _number(self, timeout):
        """The next number that the server sends, or None where it sends none in time."""
        end = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._lines:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([self._channel], [], [], left)[0]:
                return None
            part = self._channel.recv(64)
            if not part:
                raise RuntimeError("the server of Python ranks has ended")
            self._lines += part
        line, self._lines = self._lines.split(b"\n", 1)
        return int(line)

    def poll(self):
        if self.returncode is None:
            self.returncode = self._number(0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            self.returncode = self._number(timeout)
            if self.returncode is None:
                raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout)
        return self.returncode

    def communicate(self, timeout=None):
        self.wait(timeout)
        texts = []
        for file in self._outputs:
            file.seek(0)
            texts.append(file.read().decode())
            file.close()
        self._channel.close()
        return tuple(texts)

    def kill(self):
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


class Server:
    def __init__(self):
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                             env=dict(os.environ, **FIXED), stdin=subprocess.DEVNULL)
        self._control = ours
        atexit.register(self._control.close)

    def start(self, argv, env, cwd, outputs):
        request = json.dumps({"argv": [str(word) for word in argv[1:]], "env": env, "cwd": str(cwd)}).encode()
        ours, theirs = socket.socketpair()
        with theirs:
            files = array.array("i", [theirs.fileno(), *(file.fileno() for file in outputs)])
            self._control.sendmsg([len(request).to_bytes(4, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
            self._control.sendall(request)
        return Rank(ours, outputs)


_server = None


def start(argv, env, cwd=None, outputs=None):
    """`outputs`: files for both streams, open for reading as well, which the rank closes; temporary ones unless given."""
    global _server
    if _server is None:
        _server = Server()
    return _server.start(argv, env, cwd or pathlib.Path.cwd(), outputs or [tempfile.TemporaryFile() for _ in range(2)])


# From here on: the server.

def run(request, files):
    """In the forked child: what Python does with a script."""
    for signals in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signals, signal.default_int_handler if signals == signal.SIGINT else signal.SIG_DFL)
    for number, file in enumerate(files[1:], 1):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    script = request["argv"][0]
    sys.argv[:] = request["argv"]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    sys.path[1:1] = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder not in sys.path]
    runpy.run_path(script, run_name="__main__")


def receive(control):
    """The next request and its files, or None at the end."""
    head, ancillary, _, _ = control.recvmsg(4, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    if not head:
        return None
    files = array.array("i")
    files.frombytes(ancillary[0][2])
    length = int.from_bytes(head, "little")
    text = b""
    while len(text) < length:
        text += control.recv(length - len(text))
    return json.loads(text), list(files)


def serve(control):
    """Forks a child for each request until the other end is closed; returns the request and files in the child, None at the end."""
    channels = {}  # by pid
    watched = {}  # pidfd to pid
    while True:
        ready = select.select([control, *watched], [], [])[0]
        for pidfd in [fd for fd in ready if fd is not control]:
            pid = watched.pop(pidfd)
            os.close(pidfd)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with channels.pop(pid) as channel:
                try:
                    channel.sendall(b"%d\n" % status)
                except BrokenPipeError:
                    pass  # who started it no longer asks
        if control not in ready:
            continue
        asked = receive(control)
        if asked is None:
            for pid in channels:
                os.kill(pid, signal.SIGKILL)
            return None
        request, files = asked
        pid = os.fork()
        if pid == 0:
            control.close()
            for pidfd in watched:
                os.close(pidfd)
            for channel in channels.values():
                channel.close()
            return request, files
        channels[pid] = socket.socket(fileno=files[0])
        for file in files[1:]:
            os.close(file)
        channels[pid].sendall(b"%d\n" % pid)
        watched[os.pidfd_open(pid)] = pid


def main():
    for name in MODULES:
        __import__(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who has started it ends it
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        run(*asked)


if __name__ == "__main__":
    main()
