"""A real SLURM of two nodes, n01 and n02, each in its own network namespace (tests/cluster/namespaces.py), with its own munge.

Nothing of it is the system's: configuration, key, spool and logs lie in one folder, and the daemons run in the foreground.
Needs root; ready after a second.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import namespaces
from process_tree import finish

PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "salloc", "sinfo", "scontrol")
# proctrack without cgroups: tests run in containers as well. KillWait: from SIGTERM to SIGKILL.
CONFIGURATION = """
ClusterName=cohort
SlurmctldHost=node-a
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=10000
SlurmdParameters=config_overrides
KillWait=5
NodeName=n[01-02] NodeAddr=10.77.0.[1-2] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:4
"""


def path():
    return os.environ["PATH"] + ":/usr/sbin:/sbin"


def why_not():
    """The reason why this machine cannot run it; empty if it can."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=path()) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)} (apt-get install slurm-wlm munge)"
    return namespaces.why_not()


class Slurm:
    def __init__(self, folder):
        self.folder = folder
        self.cluster = namespaces.Cluster(folder)
        self.configuration = folder / "slurm.conf"
        self.daemons = []

    def environment(self, **variables):
        foreign = ("SLURM_", "SBATCH_", "PET_", "TORCHELASTIC_", "MASTER_", "OMP_", "OMPI_", "PMI", "RANK", "WORLD_SIZE",
                   "LOCAL_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return {**kept, "PATH": path(), "SLURM_CONF": str(self.configuration), **variables}

    def start(self):
        for name in ("state", "spool-n01", "spool-n02"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.configuration.write_text(CONFIGURATION.format(folder=self.folder))
        # Named, because looking for a cgroup hierarchy fails where none is mounted.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.cluster.make()
        first = self.cluster.hosts[0]
        munge = {name: self.folder / f"munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")}
        self.daemon("munged", first, ["munged", "--foreground", "--force", f"--key-file={key}",
                                      *(f"--{name}={file}" for name, file in munge.items())])
        self.daemon("slurmctld", first, ["slurmctld", "-D"])
        for number, host in enumerate(self.cluster.hosts, start=1):
            host.set_hosts("10.77.0.1 n01", "10.77.0.2 n02")
            self.daemon(f"slurmd-n0{number}", host, ["slurmd", "-D", "-N", f"n0{number}"])
        self.wait_until_ready()

    def daemon(self, name, host, program):
        with open(self.folder / f"{name}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(host.command(program), env=self.environment(), stdin=subprocess.DEVNULL,
                                                 stdout=out, stderr=subprocess.STDOUT))

    def wait_until_ready(self):
        deadline = time.monotonic() + 300
        while True:
            shown = self.run(["sinfo", "--noheader", "--format=%t %D"])
            if shown.stdout == "idle 2\n":
                return
            if time.monotonic() > deadline:
                logs = "".join(f"--- {file.name}\n{file.read_text()[-2000:]}" for file in sorted(self.folder.glob("*.out")))
                raise RuntimeError(f"SLURM is not ready: {shown.stdout}{shown.stderr}\n{logs}")
            time.sleep(0.1)

    def start_user(self, command, **variables):
        """A program on node-a, as a user there would start it."""
        command = self.cluster.hosts[0].command(command)
        return subprocess.Popen(command, cwd=self.folder, env=self.environment(**variables), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, command, timeout=300, **variables):
        """The same to its end: (exit code, stdout, stderr)."""
        return finish(self.start_user(command, **variables), timeout)

    def batch(self, file, *arguments, flags=(), **variables):
        """sbatch to its job's end: (exit code, the job's output)."""
        out = self.folder / f"batch-{len(list(self.folder.glob('batch-*')))}.out"
        out.touch()
        submitted = self.run(["sbatch", "--parsable", f"--output={out}", f"--chdir={self.folder}", *flags, file, *arguments],
                             **variables)
        if submitted.returncode:
            return submitted.returncode, submitted.stderr
        return self.wait_for_job(submitted.stdout.strip()), out.read_text()

    def wait_for_job(self, number):
        """Its exit code. `sbatch --wait` looks every few seconds only."""
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            shown = self.run(["scontrol", "--oneliner", "show", "job", number]).stdout
            if re.search(r"JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|OUT_OF_MEMORY)\b", shown):
                return int(re.search(r" ExitCode=(\d+):", shown).group(1))
            time.sleep(0.1)
        raise TimeoutError(f"job {number} does not end: {shown}")

    def processes(self):
        lists = [namespaces.ip("netns", "pids", host.namespace, check=False).stdout.split() for host in self.cluster.hosts]
        return [int(pid) for pids in lists for pid in pids]

    def stop(self):
        deadline = time.monotonic() + 30
        while (pids := [pid for pid in self.processes() if is_alive(pid)]) and time.monotonic() < deadline:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for daemon in self.daemons:
                daemon.poll()
            time.sleep(0.02)
        for daemon in self.daemons:
            daemon.wait()
        self.cluster.remove()


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
