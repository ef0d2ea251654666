"""Nodes of a rendezvous as processes (programs/rendezvous), whose events are lines."""
import os
import re
import signal
import socket
import subprocess
import threading
import time

from harness import BUILD

NODE = BUILD / "bin" / "tests" / "rendezvous_node"
# A node is lost after two seconds; on a loaded machine the scheduler may take half of that.
QUICK = "join_timeout=300,last_call_timeout=0.5,keep_alive_interval=0.25,keep_alive_max_attempt=8"
HANG = 300


def held_port():
    """A port that nobody gets by asking for any, and a server with SO_REUSEADDR may listen on; and the socket that holds it."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder, holder.getsockname()[1]


class Node:
    """`command` wraps the program, as a host's namespace does."""

    def __init__(self, *flags, conf=QUICK, backend="c10d", command=lambda program: program, env=None):
        words = [NODE, f"--rdzv-backend={backend}", f"--rdzv-conf={conf}", *flags]
        self.process = subprocess.Popen(command([str(word) for word in words]), stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, "COHORT_LOG_LEVEL": "info", **(env or {})})
        self.lines, self.errors = [], []
        self.arrived = threading.Condition()
        self.readers = [threading.Thread(target=self._read, args=pair, daemon=True)
                        for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self.readers:
            reader.start()
        self.num_read = 0

    def _read(self, stream, lines):
        for line in stream:
            with self.arrived:
                lines.append(line.rstrip("\n"))
                self.arrived.notify_all()

    def next(self, timeout=HANG):
        """The next event; an error's further lines are part of it."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.lines) > self.num_read, timeout), \
                (self.lines, self.errors, self.process.poll())
        first = self.num_read
        if self.lines[first].startswith("error"):
            self.ended()
            self.num_read = len(self.lines)
        else:
            self.num_read += 1
        return "\n".join(self.lines[first:self.num_read])

    def wait_for_errors(self, text):
        """For a line of its log."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: any(text in line for line in self.errors), HANG), (self.lines, self.errors)

    def is_quiet(self, seconds):
        time.sleep(seconds)
        return len(self.lines) == self.num_read

    def round(self):
        """The next event, which must be a round, without the port of its store."""
        line = self.next()
        assert line.startswith("round "), line
        return re.sub(r"store \S+ nodes.*", "", line).strip()

    def order(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait(HANG)

    def ended(self):
        code = self.process.wait(HANG)
        for reader in self.readers:
            reader.join(HANG)
        return code

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(HANG)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass


class Job:
    """Starts nodes at one endpoint and ends them all."""

    def __init__(self, endpoint=None):
        self.holder, port = (None, None) if endpoint else held_port()
        self.endpoint = endpoint or f"127.0.0.1:{port}"
        self.nodes = []

    def node(self, *flags, **options):
        node = Node(f"--rdzv-endpoint={self.endpoint}", "--rdzv-id=job", *flags, **options)
        self.nodes.append(node)
        return node

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.close()
        if self.holder:
            self.holder.close()
