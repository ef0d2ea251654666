"""Dumps of the flight recorder, read by PyTorch's own analyzer and compared with PyTorch's own dump."""
import gc
import json
import logging
import os
import pickle
import subprocess
import sys

from harness import BUILD, run_ranks
from torch.distributed.flight_recorder import fr_trace

RANKS = BUILD / "bin" / "cohort_shm_test"
PYTORCHS_DUMP = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
dist.all_reduce(torch.ones(8))
dump = torch._C._distributed_c10d._dump_fr_trace
open(sys.argv[1], "wb").write(dump())
open(sys.argv[2], "wb").write(torch._C._distributed_c10d._dump_fr_trace_json())
dist.destroy_process_group()
os._exit(0)  # the interpreter's own end may abort: see ddp_reference.py
"""


def run_and_dump(folder, act):
    command = [RANKS, "--worker=traced_rank", f"cohort-e2e-{os.getpid()}-{folder.name}", act]
    for code, out, err in run_ranks([command] * 2, env={"COHORT_TRACE_FILE": str(folder / "run_")}):
        assert code == 0, out + err


def analyze(folder, caplog):
    """Returns what torchfrtrace found, and what it said."""
    out = folder / "analysis"
    with caplog.at_level(logging.INFO, logger="Flight Recorder"):
        fr_trace.main([str(folder), "-o", str(out)])
    gc.enable()  # the analyzer switches it off
    with open(out, "rb") as file:
        _, database = pickle.load(file)
    return database, "\n".join(record.getMessage() for record in caplog.records)


def test_the_analyzer_matches_every_operation(tmp_path, caplog):
    run_and_dump(tmp_path, "dumps")
    database, said = analyze(tmp_path, caplog)
    names = [collective.collective_name for collective in database.collectives]
    assert names == ["gloo:" + name for name in (
        "barrier", "all_reduce", "all_reduce", "all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter",
        "reduce_scatter", "all_to_all", "new_window", "send 0->1", "barrier")]
    assert all(collective.pass_check for collective in database.collectives), said
    assert "has errors" not in said


def test_the_analyzer_finds_the_missing_rank(tmp_path, caplog):
    run_and_dump(tmp_path, "stays away")
    _, said = analyze(tmp_path, caplog)
    assert "Not all ranks joining collective, sequence number: 14" in said
    assert "collective: gloo:all_reduce\nmissing ranks: {1}" in said


def test_has_all_fields_of_pytorchs_own_dump(tmp_path):
    run_and_dump(tmp_path, "dumps")
    theirs = tmp_path / "theirs", tmp_path / "theirs.json"
    subprocess.run([sys.executable, "-c", PYTORCHS_DUMP, *map(str, theirs)], check=True, timeout=300)
    compare(pickle.loads((tmp_path / "torch_run_0").read_bytes()), pickle.loads(theirs[0].read_bytes()))
    compare(json.loads((tmp_path / "run_0.json").read_text()), json.loads(theirs[1].read_bytes()))


def compare(ours, pytorchs):
    assert pytorchs["entries"], "PyTorch has recorded nothing"
    assert ours["version"] == pytorchs["version"]
    assert pytorchs.keys() <= ours.keys()
    config, their_config = (next(iter(dump["pg_config"].values())) for dump in (ours, pytorchs))
    assert types_of(config) == types_of(their_config)
    entry = next(entry for entry in ours["entries"] if entry["profiling_name"].endswith(":all_reduce"))
    their_entry = next(entry for entry in pytorchs["entries"] if entry["profiling_name"].endswith("all_reduce"))
    for key, value in types_of(their_entry).items():
        assert key in entry, key
        # PyTorch leaves out times that it does not know; its tuples are lists here.
        if their_entry[key] is not None and key != "process_group":
            assert types_of(entry)[key] == value, key


def types_of(values):
    return {key: type(value) for key, value in values.items()}


def test_the_chrome_trace_loads(tmp_path):
    run_and_dump(tmp_path, "dumps")
    events = json.loads((tmp_path / "run_1.trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) >= 2 * 13
    assert all(span["dur"] >= 0 and span["ts"] >= 0 for span in spans)
