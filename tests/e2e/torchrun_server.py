"""torchrun without its start-up: this process imports PyTorch once; each run is a fork of it that calls torchrun's own main().

Started by torchrun_parity_test.py. Reads one JSON object per line and answers each with one:
  {"module": "torch.distributed.run", "args": [...], "env": {...}, "cwd": ..., "out": FILE, "err": FILE}  ->  {"pid": 4711}
  {"wait": 4711}                                                                                ->  {"code": 1}
"""
import importlib
import json
import os
import sys
import traceback


def work(request):
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["torchrun", *request["args"]]
    # Workers of a function's kind (--run-path) start as this process did, and must not start a server.
    sys.modules["__main__"].__file__ = request["file"]
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
