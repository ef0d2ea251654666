"""rendezvous_nodes.cpp with torchrun's agents: DynamicRendezvousHandler, a thread per node, the store in another process."""
import socket
import subprocess
import sys
import threading
import time

from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

STORE = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


def all_at_once(handlers):
    """Returns the milliseconds until every handler has its round."""
    errors, ranks = [], set()

    def work(handler):
        try:
            info = handler.next_rendezvous()
            assert info.world_size == len(handlers), info.world_size
            ranks.add(info.rank)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=[handler]) for handler in handlers]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    assert len(ranks) == len(handlers)
    return (time.monotonic() - begin) * 1e3


def meet(num_nodes, port, number):
    handlers = []
    for _ in range(num_nodes):
        parameters = RendezvousParameters("c10d", f"127.0.0.1:{port}", f"meeting{number}", num_nodes, num_nodes, is_host="false",
                                          local_addr="127.0.0.1")
        backend, store = create_backend(parameters)
        handlers.append(create_handler(store, backend, parameters))
    met = all_at_once(handlers)
    restarted = all_at_once(handlers)
    handlers[0].shutdown()
    return met, restarted


def main():
    server = subprocess.Popen([sys.executable, "-c", STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline())
        with open(sys.argv[2]) as commands:
            for number, line in enumerate(commands):
                if line.strip() == "quit":
                    break
                print("=", *meet(int(line.split()[1]), port, number), flush=True)
    finally:
        server.kill()
        server.wait()


main()
