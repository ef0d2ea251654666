"""torchrun without its start-up, for tests that run it often: main() of its module, in a fork of a process that has PyTorch loaded
(python_server.py).

  start(arguments, env, folder, out, err)     in a test; the output goes to the files `out` and `err`
  forked_torchrun.py MODULE ARGUMENT...       what is forked
"""
import importlib
import sys

import python_server
from process_tree import kill_tree

HANG_LIMIT = 300


def start(arguments, env, folder, out, err, module="torch.distributed.run"):
    """Returns the agent (a python_server.Rank)."""
    argv = [sys.executable, __file__, module, *map(str, arguments)]
    return python_server.start(argv, env, folder, outputs=(open(out, "w+b"), open(err, "w+b")))


def wait(agent):
    """Returns the exit code of an agent, torchrun's or another one whose output goes to files. One that hangs is ended with its
    workers, which torchrun starts in sessions of their own."""
    try:
        agent.communicate(timeout=HANG_LIMIT)
        return agent.returncode
    finally:
        if agent.poll() is None:
            kill_tree(agent.pid)
            agent.wait()


if __name__ == "__main__":
    module, sys.argv = sys.argv[1], ["torchrun", *sys.argv[2:]]
    importlib.import_module(module).main(sys.argv[1:])
