"""Jobs of `cohort run` agents on this host, for tests that kill parts of them: who belongs to a job, and what it leaves behind.

Every process of a job has the job's mark in its environment, so none is missed and none of another job is met.
"""
import os
import pathlib
import re
import signal
import subprocess
import time
import uuid

from harness import BUILD, free_port
from process_tree import read_process, state_of

COHORT = BUILD / "bin" / "cohort"
MARK = "COHORT_TEST_JOB"
HANG_LIMIT = 300


def wait_until(condition, what, limit=HANG_LIMIT):
    """Returns the first true value of `condition`; `what` is said, or called, when it never comes."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {limit} s: {what() if callable(what) else what}")


class Agent:
    """One `cohort run`; what it prints, workers included, is in files, so that nobody ever waits for us."""

    def __init__(self, job, number, command, environment, cwd, wrapper, pass_fds):
        self.job, self.output_file, self.error_file = job, job.folder / f"{number}.out", job.folder / f"{number}.err"
        with open(self.output_file, "w") as out, open(self.error_file, "w") as err:
            self.process = subprocess.Popen([*wrapper, *command], env=environment, cwd=cwd, stdout=out, stderr=err,
                                            stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=pass_fds)

    @property
    def output(self):
        return self.output_file.read_text(errors="replace")

    @property
    def errors(self):
        return self.error_file.read_text(errors="replace")

    @property
    def pid(self):
        """Of the launcher itself, where a wrapper started it and waits for it."""
        own = [pid for pid in self.job.processes("cohort") if self.is_above(pid)]
        return own[0] if own else self.process.pid

    def is_above(self, pid):
        while pid > 1 and pid != self.process.pid:
            state = state_of(pid)
            pid = state[1] if state else 0
        return pid == self.process.pid

    def workers(self):
        """Pids of the processes that the launcher started, but for its guard."""
        pid = self.pid
        found = self.job.processes()
        return sorted(child for child, name in found.items()
                      if name not in ("cohort-guard", "cohort") and (state_of(child) or ("", 0))[1] == pid)

    def guard(self):
        """Its pid. On a busy machine the first worker may run before the guard has given itself its name."""
        pid = self.pid

        def found():
            return [child for child in self.job.processes("cohort-guard") if (state_of(child) or ("", 0))[1] == pid]
        return wait_until(found, lambda: f"a guard below {pid}: {self.job.processes()}")[0]

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)

    def wait_for_output(self, text, count=1):
        wait_until(lambda: self.output.count(text) >= count, lambda: f"{text!r} in {self.output}{self.errors}")

    def wait_for_errors(self, text):
        wait_until(lambda: text in self.errors, lambda: f"{text!r} in {self.output}{self.errors}")

    def finish(self):
        """Exit code, or minus the signal's number."""
        try:
            return self.process.wait(HANG_LIMIT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the launcher hangs: {self.output}{self.errors}") from None


class Job:
    def __init__(self, folder):
        self.folder = folder / uuid.uuid4().hex[:8]
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.mark = f"{MARK}={self.folder.name}"
        self.port = free_port()
        self.agents = []

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.port}"

    def environment(self, **variables):
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("PET_", "TORCHELASTIC_", "MASTER_"))}
        return dict(clean, OMP_NUM_THREADS="1", TMPDIR=str(self.temporary), **{MARK: self.folder.name}, **variables)

    def start(self, *words, cwd=None, wrapper=(), pass_fds=(), **variables):
        """`cohort run` with these words; `wrapper`: a command that starts it, and has the descriptors `pass_fds`."""
        command = [str(COHORT), "run", *map(str, words)]
        agent = Agent(self, len(self.agents), command, self.environment(**variables), cwd or self.folder,
                      [str(word) for word in wrapper], pass_fds)
        self.agents.append(agent)
        return agent

    def start_script(self, script, *flags, **kwargs):
        """The workers are POSIX shell scripts."""
        return self.start(*flags, "--no-python", "sh", "-c", script.replace("$$", "$$$$"), **kwargs)

    def node(self, script, *flags, nodes=2, conf="", **kwargs):
        """A node of a job with quick keep-alives: a silent one counts as lost after 2.4 s."""
        conf = ",".join(["keep_alive_interval=0.3", "keep_alive_max_attempt=8", "last_call_timeout=0.3", *([conf] if conf else [])])
        return self.start_script(script, f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint}",
                                 "--rdzv-id=job", f"--rdzv-conf={conf}", *flags, **kwargs)

    def processes(self, name=None):
        """{pid: name} of the job's living processes, or of those with a name."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or self.mark.encode() not in read_process(entry, "environ").split(b"\0"):
                continue
            own = read_process(entry, "comm").decode().strip()
            state = state_of(entry)
            if state and state[0] not in "ZX" and name in (None, own):
                found[int(entry)] = own
        return found

    def sockets(self):
        """Inodes of the sockets that the job's processes hold."""
        inodes = set()
        for pid in self.processes():
            for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
                try:
                    inodes |= set(re.findall(r"socket:\[(\d+)\]", os.readlink(fd)))
                except OSError:
                    pass
        return inodes

    def listening_ports(self):
        rows = [line.split() for name in ("tcp", "tcp6") for line in pathlib.Path("/proc/net", name).read_text().splitlines()[1:]]
        own = self.sockets()
        return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in own}

    def check_nothing_left(self, ports=()):
        """No process, no temporary file, no port of `ports` or of the rendezvous that somebody still listens on."""
        wait_until(lambda: not self.processes(), lambda: f"the end of {self.processes()}")
        left = sorted(str(path.relative_to(self.temporary)) for path in self.temporary.iterdir())
        # What failing C++ ranks report on purpose.
        assert [name for name in left if not name.startswith("cohort_trace_")] == []
        listening = {int(line.split()[1].rpartition(":")[2], 16) for name in ("tcp", "tcp6")
                     for line in pathlib.Path("/proc/net", name).read_text().splitlines()[1:] if line.split()[3] == "0A"}
        assert not {self.port, *ports} & listening

    def end(self):
        """Whatever a failed test has left."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for agent in self.agents:
            if agent.process.poll() is None:
                agent.process.kill()
            agent.process.wait()
