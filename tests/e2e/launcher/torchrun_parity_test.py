"""Every flag that torchrun and `cohort run` share, on the same program, side by side: what workers find in their environment
and arguments, files of logs, console, exit code and report. What may differ is written here; docs/parity.md gives the reasons.
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import forked_torchrun
from harness import BUILD, free_port

COHORT = BUILD / "bin" / "cohort"
HANG_LIMIT = 300
FOREIGN = ("PET_", "TORCHELASTIC_", "TORCH_", "MASTER_", "OMP_", "SLURM_", "OMPI_", "PMI", "RANK", "WORLD_SIZE", "LOCAL_",
           "GROUP_", "ROLE_", "COHORT_", "PYTEST_", "CUDA_")

# Prints, then writes what it found (who waits for that file may end everybody), then ends as told: FAIL="1:0:7" is "rank 1 in
# attempt 0 ends with 7".
PROGRAM = r'''
import json, os, pathlib, signal, sys, time
env = dict(os.environ)
who = f"rank {env['RANK']} attempt {env['TORCHELASTIC_RESTART_COUNT']}"
print(who, "out"); print(who, "needle"); print(who, "err", file=sys.stderr); print(who, "pin", file=sys.stderr)
sys.stdout.flush(); sys.stderr.flush()
name = env["TORCHELASTIC_RESTART_COUNT"] + "-" + env["RANK"] + ".json"
found = {"env": env, "argv": sys.argv, "name": __name__, "unbuffered": sys.stdout.write_through,
         "pid": os.getpid(), "group": os.getpgid(0), "session": os.getsid(0)}
path = pathlib.Path(env["FOUND"])
(path / (name + ".tmp")).write_text(json.dumps(found))
(path / (name + ".tmp")).rename(path / name)
if env.get("MEET"):
    while len(list(path.glob(env["TORCHELASTIC_RESTART_COUNT"] + "-*.json"))) < int(env["WORLD_SIZE"]): time.sleep(0.01)
def hear(number, _):
    (path / f"{env['RANK']}.signal").write_text(signal.Signals(number).name)
    sys.exit(0)
if env.get("HEAR"):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, hear)
    (path / f"{env['RANK']}.ready").write_text("")
    while True: time.sleep(0.05)  # a signal just before a sleep is heard after it
for rank, attempt, end in (word.split(":") for word in env.get("FAIL", "").split()):
    if attempt != env["TORCHELASTIC_RESTART_COUNT"]: continue
    if rank == env["RANK"]:
        if end.startswith("SIG"): os.kill(os.getpid(), getattr(signal, end))
        sys.exit(int(end))
    time.sleep(1000)
'''


def start_torchrun(run):
    module = "torch.distributed.launch" if run.legacy else "torch.distributed.run"
    return forked_torchrun.start(run.arguments, run.env, run.folder, run.out, run.err, module)


def start_cohort(run):
    with open(run.out, "wb") as out, open(run.err, "wb") as err:
        command = [COHORT, "launch" if run.legacy else "run", *run.arguments]
        return subprocess.Popen(command, env=run.env, cwd=run.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err)


LAUNCHERS = {"torchrun": start_torchrun, "cohort": start_cohort}


def clean_environment(**variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**kept, "PYTHON_EXEC": sys.executable, **variables}


class Run:
    """One agent's run and all that can be seen of it."""

    def __init__(self, folder, arguments, legacy=False, **variables):
        self.folder, self.legacy, self.process = folder, legacy, None
        self.found, self.logs = folder / "found", folder / "logs"
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        self.found.mkdir(parents=True, exist_ok=True)
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.arguments = [str(word).replace("FOLDER", str(folder)) for word in arguments]
        for name, text in (("work.py", PROGRAM), ("work.sh", f'#!/bin/sh\nexec {sys.executable} work.py "$@"\n')):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.env = clean_environment(**{"FOUND": str(self.found), "OMP_NUM_THREADS": "1", "TMPDIR": str(self.temporary), **{
            name: str(value).replace("FOLDER", str(folder)) for name, value in variables.items()}})

    def workers(self):
        """By (attempt, rank)."""
        return {tuple(map(int, file.stem.split("-"))): json.loads(file.read_text()) for file in self.found.glob("*.json")}

    def variables(self):
        """What the launcher set or changed, by worker."""
        return {place: {name: self.plain(name, value) for name, value in worker["env"].items() if self.env.get(name) != value}
                for place, worker in self.workers().items()}

    def plain(self, name, value):
        """Without what differs in every run."""
        if name in ("MASTER_PORT",) and value.isdigit():
            return "PORT"
        value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", value)
        return re.sub(r"((?:UUID|job|none|torchelastic)_)[A-Za-z0-9_]{6,8}/", r"\1X/", value.replace(str(self.folder), "FOLDER"))

    def log_files(self):
        """Names and contents under --log-dir, the run's own folder's random letters replaced."""
        files = (file for file in self.logs.rglob("*") if file.is_file())
        return {self.plain("", str(file.relative_to(self.logs))): sorted(file.read_text().splitlines()) for file in files}

    def console(self):
        return sorted(self.out.read_text().splitlines())

    def errors_of_workers(self):
        """Lines of standard error that are workers', launchers' own left out."""
        return sorted(line for line in self.err.read_text().splitlines() if re.search(r"rank \d+ attempt \d+ (err|pin)$", line))

    def report(self):
        text = self.err.read_text()
        begin = text.find("\n===")
        if begin < 0:
            return []
        shown = []
        for line in text[begin + 1:].rstrip("\n").split("\n"):
            line = re.sub(r"pid: \d+", "pid: N", line)
            line = re.sub(r"PID \d+", "PID N", line)
            line = re.sub(r"\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d", "TIME", line)
            line = re.sub(r"^  host      : .*", "  host      : HOST", line)
            shown.append(re.sub(r"^(  error_file: ).*(/attempt_\d/)", r"\1X\2", line))
        return shown


@pytest.fixture
def side_by_side(tmp_path):
    """Runs agents (one list of arguments each) under both; returns {name: [Run with .code]}."""

    def run(*agents, legacy=False, variables=({},), only=tuple(LAUNCHERS), when_started=None, before_each=None):
        results = {}
        for name in only:
            number = len(list(tmp_path.glob(f"{name}-*")))
            folder = tmp_path / f"{name}-{number}"
            port = str(free_port())
            runs = []
            for index, arguments in enumerate(agents):
                arguments = [str(word).replace("PORT", port) for word in arguments]
                own = {key: str(value).replace("PORT", port) for key, value in variables[index % len(variables)].items()}
                runs.append(Run(folder / str(index) if len(agents) > 1 else folder, arguments, legacy, **own))
            if len(agents) > 1:  # one job: workers of all agents write to one place
                for other in runs[1:]:
                    other.found, other.env["FOUND"] = runs[0].found, str(runs[0].found)
            try:
                for each in runs:
                    if before_each:
                        before_each(each, runs)
                    each.process = LAUNCHERS[name](each)
                if when_started:
                    when_started(runs)
            except BaseException:
                for each in runs:
                    if each.process:
                        os.kill(each.process.pid, signal.SIGTERM)
                raise
            finally:
                for each in runs:
                    if each.process:
                        each.code = forked_torchrun.wait(each.process)
            results[name] = runs
        return results

    return run


# One node: rank 0's store is on the loopback address instead of under the host's name.
PERMITTED = {"MASTER_ADDR", "COHORT_AGENT", "COHORT_JOB", "COHORT_SNAPSHOTS"}


def same_variables(ours, theirs, permitted=PERMITTED):
    """All variables that the launchers set, worker by worker."""
    ours, theirs = ours.variables(), theirs.variables()
    assert ours.keys() == theirs.keys()
    for place in ours:
        differing = {name: (ours[place].get(name), theirs[place].get(name)) for name in ours[place].keys() | theirs[place].keys()
                     if ours[place].get(name) != theirs[place].get(name) and name not in permitted}
        assert differing == {}, place


def same_errors(ours, theirs, expected):
    """On a busy machine torchrun may mix up a line with another one, so that some of its lines are missing."""
    assert ours.errors_of_workers() == expected
    assert theirs.errors_of_workers() and set(theirs.errors_of_workers()) <= set(expected)


FLAGS = {
    "nnodes": "1", "nproc-per-node": "2", "rdzv-backend": "c10d", "rdzv-endpoint": "127.0.0.1:PORT", "rdzv-id": "job",
    "rdzv-conf": "join_timeout=60,last_call_timeout=1", "max-restarts": "2", "monitor-interval": "0.05", "start-method": "spawn",
    "event-log-handler": "null", "role": "trainer", "log-dir": "FOLDER/logs", "redirects": "3", "tee": "0:3,1:1",
    "local-ranks-filter": "0", "duplicate-stdout-filters": "needle,absent", "duplicate-stderr-filters": "pin",
    "local-addr": "127.0.0.1", "signals-to-handle": "SIGTERM,SIGINT", "shutdown-timeout": "5",
}
SPELLINGS = {
    "dashes": ([f"--{name}={value}" for name, value in FLAGS.items()], {}),
    "underscores, values apart": ([word for name, value in FLAGS.items() for word in ("--" + name.replace("-", "_"), value)], {}),
    "PET variables": ([], {"PET_" + name.upper().replace("-", "_"): value for name, value in FLAGS.items()}),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_all_flags_of_a_job_that_restarts_once(side_by_side, spelling):
    flags, variables = SPELLINGS[spelling]
    runs = side_by_side([*flags, "work.py", "--lr=1", "${local_rank}"], variables=[dict(variables, FAIL="1:0:7", MEET="1")])
    ours, theirs = runs["cohort"][0], runs["torchrun"][0]
    assert (ours.code, theirs.code) == (0, 0), ours.err.read_text() + theirs.err.read_text()
    assert sorted(ours.workers()) == sorted(theirs.workers()) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    same_variables(ours, theirs)
    assert {place: worker["argv"] for place, worker in ours.workers().items()} == {
        place: worker["argv"] for place, worker in theirs.workers().items()}
    assert ours.workers()[1, 1]["argv"][1:] == ["--lr=1", "1"]
    assert ours.log_files() == theirs.log_files()
    assert "job_X/attempt_1/filtered_stdout.log" in ours.log_files()
    assert ours.console() == theirs.console()
    same_errors(ours, theirs, [f"[trainer0]:rank 0 attempt {attempt} {word}" for attempt in (0, 1) for word in ("err", "pin")])


def test_the_command_line_wins_over_variables_and_ours_over_its_config(side_by_side, tmp_path):
    arguments = ["--role=typed", "work.py"]
    runs = side_by_side(arguments, variables=[{"PET_ROLE": "inherited", "PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1"}])
    ours, theirs = runs["cohort"][0], runs["torchrun"][0]
    assert (ours.code, theirs.code) == (0, 0)
    same_variables(ours, theirs)
    assert ours.variables()[0, 1]["ROLE_NAME"] == "typed"
    (tmp_path / "flags.toml").write_text('role = "file"\nnproc-per-node = 3\nmax-restarts = 4\n')
    configured = side_by_side([f"--config={tmp_path}/flags.toml", *arguments], variables=[{"PET_NPROC_PER_NODE": "2"}],
                              only=("cohort",))["cohort"][0]
    assert configured.variables()[0, 1]["ROLE_NAME"] == "typed"
    assert configured.variables()[0, 1]["WORLD_SIZE"] == "2"
    assert configured.variables()[0, 1]["TORCHELASTIC_MAX_RESTARTS"] == "4"


WAYS = {
    "script": ["work.py", "a", "--standalone"],
    "module": ["-m", "work", "a"],
    "module, long": ["--module", "work", "a"],
    "no-python": ["--no-python", "./work.sh", "a"],
    "no_python": ["--no_python", "./work.sh", "rank-${local_rank}", "$$"],
    "run-path": ["--run-path", "work.py", "a"],
    "standalone": ["--standalone", "work.py"],
    "static": ["--master-addr=127.0.0.1", "--master-port=PORT", "--node-rank=0", "work.py"],
    "nproc cpu": ["--nproc-per-node=cpu", "work.py"],
    "nproc auto": ["--nproc-per-node=auto", "work.py"],
    "virtual local rank": ["--virtual-local-rank", "--nproc-per-node=2", "work.py"],
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_start(side_by_side, way):
    variables = {"CUDA_VISIBLE_DEVICES": "3,5"} if way == "virtual local rank" else {}
    runs = side_by_side(WAYS[way], variables=[variables])
    ours, theirs = runs["cohort"][0], runs["torchrun"][0]
    assert (ours.code, theirs.code) == (0, 0), ours.err.read_text() + theirs.err.read_text()
    same_variables(ours, theirs)
    for place, worker in theirs.workers().items():
        mine = ours.workers()[place]
        assert mine["argv"][1:] == worker["argv"][1:]
        assert mine["name"] == worker["name"] == "__main__"
        assert mine["unbuffered"] or "run" in way or not worker["unbuffered"]


@pytest.mark.parametrize("flags", [[], ["--use-env"], ["--use_env", "--nproc-per-node=2"]])
def test_the_older_launcher(side_by_side, flags):
    runs = side_by_side([*flags, "--nproc_per_node=1", "work.py", "a"], legacy=True)
    ours, theirs = runs["cohort"][0], runs["torchrun"][0]
    assert (ours.code, theirs.code) == (0, 0), ours.err.read_text() + theirs.err.read_text()
    assert ours.workers()[0, 0]["argv"][1:] == theirs.workers()[0, 0]["argv"][1:]


TWO_NODES = {
    "static": [["--nnodes=2", f"--node-rank={node}", "--master-addr=127.0.0.1", "--master-port=PORT", f"--role={'ab'[node]}",
                f"--nproc-per-node={1 + node}", "work.py"] for node in range(2)],
    "c10d": [["--nnodes=2:2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:PORT", "--rdzv-id=job", "--nproc-per-node=2",
              f"--local-addr=127.0.0.{1 + node}", "work.py"] for node in range(2)],
}


@pytest.mark.parametrize("backend", TWO_NODES)
def test_two_nodes(side_by_side, backend):
    runs = side_by_side(*TWO_NODES[backend], variables=[{"MEET": "1"}])
    for name in runs:
        assert [each.code for each in runs[name]] == [0, 0], runs[name][0].err.read_text()
    # torchrun's static store is found under the host's name; --local-addr decides the order of c10d's nodes.
    same_variables(runs["cohort"][0], runs["torchrun"][0], PERMITTED | {"FOUND", "TMPDIR", "TORCHELASTIC_ERROR_FILE", "PWD"})


def test_identical_workers_change_no_rank(side_by_side):
    """TORCH_ELASTIC_WORKER_IDENTICAL is torchrun's shorter way to the same numbers; ours has one step anyway."""
    found = []
    for identical in ("0", "1"):
        runs = side_by_side(*TWO_NODES["c10d"], variables=[{"MEET": "1", "TORCH_ELASTIC_WORKER_IDENTICAL": identical}],
                            only=("cohort",))["cohort"]
        assert [each.code for each in runs] == [0, 0], runs[0].err.read_text()
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE")
        found.append({place: [worker["env"][name] for name in names] for place, worker in runs[0].workers().items()})
    assert found[0] == found[1]
    assert sorted(found[0]) == [(0, 0), (0, 1), (0, 2), (0, 3)]


FAILURES = {
    "exit code": ("1:0:7", ["--nproc-per-node=2"]),
    "signal": ("0:0:SIGKILL", ["--nproc-per-node=3"]),
    "after its restarts": ("0:0:3 1:1:4", ["--nproc-per-node=2", "--max-restarts=1"]),
    "alone": ("0:0:9", []),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures(side_by_side, case):
    fail, flags = FAILURES[case]
    runs = side_by_side([*flags, "--log-dir=FOLDER/logs", "--redirects=2", "work.py"], variables=[{"FAIL": fail, "MEET": "1"}])
    ours, theirs = runs["cohort"][0], runs["torchrun"][0]
    assert (ours.code, theirs.code) == (1, 1)
    assert ours.report() == theirs.report() != []
    same_variables(ours, theirs)
    assert ours.log_files() == theirs.log_files()


# What is sent, --signals-to-handle, and what workers then hear.
SIGNALS = {
    "SIGTERM": ("SIGTERM", "SIGTERM"),
    "SIGINT": ("SIGINT", "SIGINT,SIGTERM"),
    "SIGHUP": ("SIGHUP", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
}


@pytest.mark.parametrize("case", SIGNALS)
def test_signals_go_to_the_workers(side_by_side, case):
    name, handled = SIGNALS[case]

    def send(runs):
        deadline = time.monotonic() + HANG_LIMIT
        while len(list(runs[0].found.glob("*.ready"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(runs[0].process.pid, getattr(signal, name))

    runs = side_by_side(["--nproc-per-node=2", f"--signals-to-handle={handled}", "work.py"], variables=[{"HEAR": "1"}],
                        when_started=send)
    for each in (runs["torchrun"][0], runs["cohort"][0]):
        assert {file.name: file.read_text() for file in each.found.glob("*.signal")} == {"0.signal": name, "1.signal": name}
        assert each.code == 1
    same_variables(runs["cohort"][0], runs["torchrun"][0])


def test_process_groups_and_sessions(side_by_side):
    runs = side_by_side(["--nproc-per-node=3", "work.py"])
    ours, theirs = ([each.workers()[0, rank] for rank in range(3)] for each in (runs["cohort"][0], runs["torchrun"][0]))
    for worker in ours + theirs:
        assert worker["group"] == worker["pid"]
        assert worker["session"] != os.getsid(0)
    assert [worker["session"] for worker in theirs] == [worker["pid"] for worker in theirs]
    assert {worker["session"] for worker in ours} == {ours[0]["pid"]}


def test_variables_that_the_agent_reads(side_by_side):
    variables = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank} ${local_rank}> ", "OMP_NUM_THREADS": "3",
                 "TORCH_NCCL_ASYNC_ERROR_HANDLING": "2", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
                 "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "4", "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "9"}
    runs = side_by_side(["--nproc-per-node=2", "--tee=3", "work.py"], variables=[variables])
    ours, theirs = runs["cohort"][0], runs["torchrun"][0]
    assert (ours.code, theirs.code) == (0, 0), ours.err.read_text() + theirs.err.read_text()
    same_variables(ours, theirs)
    assert ours.workers()[0, 0]["env"]["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert ours.console() == theirs.console() == sorted(f"<default {rank} {rank}> rank {rank} attempt 0 {word}"
                                                        for rank in range(2) for word in ("out", "needle"))
    same_errors(ours, theirs, [f"<default {rank} {rank}> rank {rank} attempt 0 {word}" for rank in range(2) for word in ("err", "pin")])


def test_a_node_that_comes_later_restarts_all_and_uses_up_no_restart(side_by_side):
    """Workers of the first round wait until they are stopped: by the new round that takes the second node in. The variable:
    torchrun 2.13 publishes the agents' store in the first round alone, and the late node waits for it until its timeout."""
    flags = ["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:PORT", "--rdzv-id=job", "--max-restarts=2",
             "--rdzv-conf=last_call_timeout=1,join_timeout=60", "sh", "-c"]
    program = 'echo $RANK/$WORLD_SIZE/$TORCHELASTIC_RESTART_COUNT >> $FOUND/rounds; [ $WORLD_SIZE = 2 ] || exec sleep 1000'

    def wait_for_the_first_round(agent, agents):
        deadline = time.monotonic() + HANG_LIMIT
        while agent is agents[1] and not (agent.found / "rounds").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    agents = [[f"--local-addr=127.0.0.{node}", "--no-python", *flags, program] for node in (1, 2)]
    runs = side_by_side(*agents, before_each=wait_for_the_first_round, variables=[{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}])
    for name in runs:
        assert [each.code for each in runs[name]] == [0, 0], "".join(each.err.read_text() for each in runs[name])
        rounds = (runs[name][0].found / "rounds").read_text().split()
        assert (rounds[0], sorted(rounds[1:])) == ("0/1/0", ["0/2/0", "1/2/0"]), name


def test_timeout_of_rdzv_conf_does_not_end_a_start_with_c10d(side_by_side):
    """It counts with the static backend; with c10d, torchrun's join_timeout says how long a node waits. The second node comes when
    the first has waited for longer than `timeout`."""
    flags = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:PORT", "--rdzv-id=job",
             "--rdzv-conf=join_timeout=300,timeout=1", "sh", "-c", "echo $RANK/$WORLD_SIZE >> $FOUND/places"]

    def wait_for_longer(agent, agents):
        if agent is agents[1]:
            time.sleep(4)

    agents = [[f"--local-addr=127.0.0.{node}", "--no-python", *flags] for node in (1, 2)]
    runs = side_by_side(*agents, before_each=wait_for_longer, variables=[{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}])
    for name in runs:
        assert [each.code for each in runs[name]] == [0, 0], "".join(each.err.read_text() for each in runs[name])
        assert sorted((runs[name][0].found / "places").read_text().split()) == ["0/2", "1/2"], name
    assert "--rdzv-conf timeout is ignored with --rdzv-backend=c10d, as by torchrun" in runs["cohort"][0].err.read_text()


REFUSED = {
    "unknown flag": (["--bogus", "work.py"], 2),
    "no program": ([], 2),
    "nnodes": (["--nnodes=2:x", "work.py"], 1),
    "nnodes backwards": (["--nnodes=3:2", "work.py"], 1),
    "nproc-per-node": (["--nproc-per-node=many", "work.py"], 1),
    "rdzv-backend": (["--rdzv-backend=bogus", "--rdzv-endpoint=a:1", "work.py"], 1),
    "max-restarts": (["--max-restarts=-1", "work.py"], 1),
    "max-restarts, no number": (["--max-restarts=x", "work.py"], 2),
    "start-method": (["--start-method=bogus", "work.py"], 2),
    "redirects": (["--redirects=9", "work.py"], 1),
    "tee": (["--tee=0:x", "work.py"], 1),
    "local-ranks-filter": (["--local-ranks-filter=a", "work.py"], 1),
    "shutdown-timeout": (["--shutdown-timeout=-1", "work.py"], 1),
    "signals-to-handle": (["--signals-to-handle=SIGBOGUS", "work.py"], 0),  # torchrun warns and goes on
    "no-python with module": (["--no-python", "--module", "work"], 1),
    "logs-specs": (["--logs-specs=bogus", "work.py"], 1),
    "numa-binding": (["--numa-binding=bogus", "work.py"], 2),
}


def test_what_both_refuse(side_by_side):
    outcomes = {}
    for case, (arguments, torchruns_code) in REFUSED.items():
        runs = side_by_side(arguments)
        assert not runs["cohort"][0].workers() and bool(runs["torchrun"][0].workers()) == (torchruns_code == 0), case
        outcomes[case] = (runs["torchrun"][0].code, runs["cohort"][0].code)
    # Ours refuses all, and ends with 2: permitted deviations.
    assert outcomes == {case: (code, 2) for case, (_, code) in REFUSED.items()}
