"""torchrun without its start-up, for tests that run it often: a server imports PyTorch once, and each run is a fork of it that
calls torchrun's own main(). `Torchrun` starts the server, which reads one JSON object per line and answers each with one:

  {"module": "torch.distributed.run", "args": [...], "env": {...}, "cwd": ..., "out": FILE, "err": FILE}  ->  {"pid": 4711}
  {"wait": 4711}                                                                                ->  {"code": 1}
"""
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback

HANG_LIMIT = 300


class Torchrun:
    def __init__(self, env):
        self.server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       env=env)
        assert self.answer() == "ready"

    def answer(self):
        if not select.select([self.server.stdout], [], [], HANG_LIMIT)[0]:
            raise TimeoutError("torchrun does not end")
        return json.loads(self.server.stdout.readline())

    def ask(self, **request):
        self.server.stdin.write(json.dumps(request, default=str) + "\n")
        self.server.stdin.flush()
        return self.answer()

    def start(self, args, env, cwd, out, err, module="torch.distributed.run"):
        """Returns the agent's pid. Its output goes to the files `out` and `err`."""
        return self.ask(module=module, args=args, env=env, cwd=cwd, out=out, err=err)["pid"]

    def wait(self, pid):
        """Returns the agent's exit code."""
        try:
            return self.ask(wait=pid)["code"]
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise

    def close(self):
        self.server.stdin.close()
        self.server.terminate()
        self.server.wait()
        self.server.stdout.close()


def work(request):
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["torchrun", *request["args"]]
    code = 0
    try:
        importlib.import_module(request["module"]).main(request["args"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve():
    import torch.distributed.launch  # noqa: F401  (here, not in every fork)
    import torch.distributed.run  # noqa: F401
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = {"code": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
        else:
            pid = os.fork()
            if pid == 0:
                work(request)
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
