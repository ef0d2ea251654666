"""Event files of C++ beside those that torch.utils.tensorboard writes, and as TensorBoard itself reads and serves them."""
import io
import json
import pathlib
import stat
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import numpy
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch.utils.tensorboard import SummaryWriter

from harness import free_port

pytestmark = pytest.mark.tier_all  # training does not need logs

TIME = 1700000000.25


def records_of(folder):
    """The records of the one file in it, whose checksums are compared."""
    [path] = pathlib.Path(folder).glob("events.out.tfevents.*")
    data = path.read_bytes()
    records = []
    while data:
        header, length = data[:8], struct.unpack("<Q", data[:8])[0]
        assert struct.unpack("<I", data[8:12])[0] == masked_crc32c(header)
        record = data[12:12 + length]
        assert len(record) == length
        assert struct.unpack("<I", data[12 + length:16 + length])[0] == masked_crc32c(record)
        records.append(record)
        data = data[16 + length:]
    first = Event.FromString(records[0])
    assert first.file_version == "brain.Event:2" and abs(first.wall_time - time.time()) < 3600
    return records[1:]


def write(programs, folder, what):
    subprocess.run([programs / "write_events", folder, what], check=True, timeout=300)
    return folder


def numbers(*sizes):
    return (torch.arange(int(numpy.prod(sizes))) * 37 % 256).to(torch.uint8).view(sizes)


def write_scalars(writer):
    for step, value in enumerate([0.1, 0.0, -1.5, 1e300, float("inf"), float("-inf"), 1e-46, 3]):
        writer.add_scalar("train/loss", value, step * 1000, TIME + step)
    writer.add_scalar("no step", 2.0, None, TIME)
    writer.add_scalar("negative", 2.0, -5, TIME)
    writer.add_scalar("tensor", torch.full((1, 1), 0.25, dtype=torch.half), 1 << 40, TIME)
    writer.add_scalar("größe", 1.0, 1, TIME)
    writer.add_scalar("", 1.0, 1, 0.0)


def write_pictures(writer):
    writer.add_histogram("weights", torch.linspace(-3, 5, 1000, dtype=torch.double), 1, walltime=TIME)
    writer.add_histogram("few bins", torch.linspace(0.001, 5, 1000, dtype=torch.double), 2, max_bins=64, walltime=TIME)
    writer.add_histogram("bools", torch.linspace(0, 1, 5).gt(0.5), 2, walltime=TIME)
    writer.add_image("rgb", numbers(3, 5, 7), 1, TIME)
    writer.add_image("gray", numbers(5, 7), 1, TIME, "HW")
    writer.add_image("alpha", numbers(5, 7, 4), 1, TIME, "HWC")
    writer.add_image("floats", torch.linspace(-0.5, 1.5, 105).view(3, 5, 7), 1, TIME)
    writer.add_images("batch", numbers(11, 3, 4, 6), 1, TIME)
    writer.add_images("gray batch", numbers(2, 4, 6, 1), 1, TIME, "nhwc")
    writer.add_text("note", "the **first** run é", 3, TIME)
    writer.add_custom_scalars({"losses": {"both": ["Multiline", ["train/loss", "b"]]},
                               "bands": {"band": ["Margin", ["value", "lower", "upper"]]}})


def test_scalars_are_python_s_byte_for_byte(programs, tmp_path):
    ours = records_of(write(programs, tmp_path / "ours", "scalars"))
    with SummaryWriter(tmp_path / "theirs") as writer:
        write_scalars(writer)
    assert ours == records_of(tmp_path / "theirs")
    assert len(ours) == 13


def test_other_records_hold_what_python_s_do(programs, tmp_path):
    ours = [Event.FromString(record) for record in records_of(write(programs, tmp_path / "ours", "pictures"))]
    with SummaryWriter(tmp_path / "theirs") as writer:
        write_pictures(writer)
    theirs = [Event.FromString(record) for record in records_of(tmp_path / "theirs")]
    assert len(ours) == len(theirs) == 11
    for our, their in zip(ours, theirs):
        [our_value], [their_value] = our.summary.value, their.summary.value
        if their_value.tag == "custom_scalars__config__":
            our.wall_time = their.wall_time
        if their_value.HasField("image"):  # compressed by another library
            pictures = [Image.open(io.BytesIO(value.image.encoded_image_string)) for value in (our_value, their_value)]
            assert pictures[0].mode == pictures[1].mode
            numpy.testing.assert_array_equal(*map(numpy.asarray, pictures))
            our_value.image.encoded_image_string = their_value.image.encoded_image_string
        if their_value.HasField("histo"):  # summed in another order
            for field in ("sum", "sum_squares"):
                assert getattr(our_value.histo, field) == pytest.approx(getattr(their_value.histo, field), rel=1e-12)
                setattr(our_value.histo, field, getattr(their_value.histo, field))
        assert our == their
        assert our.SerializeToString(deterministic=True) == their.SerializeToString(deterministic=True)


def test_groups_and_trials_have_folders_of_their_own(programs, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write(programs, ours, "groups")
    with SummaryWriter(theirs) as writer:
        writer.add_scalars("train/losses", {"a": 1.0, "b": 2.0}, 4, TIME)
    assert sorted(path.name for path in ours.iterdir() if path.is_dir()) == ["train_losses_a", "train_losses_b"]
    for name in ("train_losses_a", "train_losses_b"):
        assert records_of(ours / name) == records_of(theirs / name)
    write(programs, tmp_path / "ours_hparams", "hparams")
    with SummaryWriter(tmp_path / "their_hparams") as writer:
        writer.add_hparams({"lr": 0.1, "n": 32, "name": "a"}, {"accuracy": 0.75}, run_name="trial", global_step=9)
    pairs = zip(records_of(tmp_path / "ours_hparams/trial"), records_of(tmp_path / "their_hparams/trial"), strict=True)
    for our, their in pairs:
        our, their = Event.FromString(our), Event.FromString(their)
        our.wall_time = their.wall_time
        for event in (our, their):  # what is a map inside has no order
            data = event.summary.value[0].metadata.plugin_data
            data.content = HParamsPluginData.FromString(data.content).SerializeToString(deterministic=True)
        assert our == their


def test_a_resumed_run_has_no_step_twice(programs, tmp_path):
    accumulator = EventAccumulator(str(write(programs, tmp_path / "run", "run")))
    accumulator.Reload()
    scalars = [(event.step, event.value) for event in accumulator.Scalars("train/loss")]
    assert scalars == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 106), (7, 107), (8, 108)]


def test_files_are_for_their_owner_alone(programs, tmp_path):
    write(programs, tmp_path / "run", "groups")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "run", *(tmp_path / "run").iterdir()] if path.is_dir()}
    assert (modes, folders) == ({0o600}, {0o700})


@pytest.fixture
def server(programs, tmp_path):
    """TensorBoard, which serves one of each; asked by get(path of a plug-in, parameters)."""
    for what in ("scalars", "pictures", "run", "hparams"):
        write(programs, tmp_path / what, what)
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", tmp_path, "--port", str(port), "--host", "127.0.0.1",
                                "--load_fast", "false", "--reload_interval", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def get(path, body=None, **parameters):
        url = f"http://127.0.0.1:{port}/data/{path}?{urllib.parse.urlencode(parameters)}"
        data = json.dumps(body).encode() if body is not None else None
        answer = urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=300).read()
        return json.loads(answer) if answer[:1] in b"[{" else answer

    try:
        deadline = time.monotonic() + 300
        while True:
            try:
                if set(get("runs")) >= {"scalars", "pictures", "run", "hparams/trial"}:
                    break
            except OSError:
                pass
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline, "TensorBoard has not read the runs in 300 s"
            time.sleep(0.2)
        yield get
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_tensorboard_serves_what_was_written(server):
    points = server("plugin/scalars/scalars", run="run", tag="train/loss")
    assert [(step, value) for _, step, value in points] == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 106), (7, 107), (8, 108)]
    assert "train/loss" in server("plugin/scalars/tags")["scalars"]
    assert set(server("plugin/histograms/tags")["pictures"]) == {"weights", "few bins", "bools"}
    assert set(server("plugin/images/tags")["pictures"]) == {"rgb", "gray", "alpha", "floats", "batch", "gray batch"}
    [image] = server("plugin/images/images", run="pictures", tag="rgb", sample=0)
    picture = Image.open(io.BytesIO(server("plugin/images/individualImage?" + image["query"])))
    numpy.testing.assert_array_equal(numpy.asarray(picture), numbers(3, 5, 7).permute(1, 2, 0).numpy())
    [text] = server("plugin/text/text", run="pictures", tag="note/text_summary")
    assert "<p>the <strong>first</strong> run é</p>" in text["text"]
    layout = server("plugin/custom_scalars/layout")
    assert [category["title"] for category in layout["category"]] == ["losses", "bands"]
    experiment = server("plugin/hparams/experiment", body={})
    assert {info["name"] for info in experiment["hparamInfos"]} >= {"lr"}
    request = {"startIndex": 0, "sliceSize": 10, "colParams": [], "allowedStatuses": ["STATUS_SUCCESS", "STATUS_UNKNOWN", "STATUS_RUNNING"]}
    groups = server("plugin/hparams/session_groups", body=request)["sessionGroups"]
    assert {"hparams/trial", "run"} <= {group["name"] for group in groups}
    [run] = [group for group in groups if group["name"] == "run"]
    assert run["hparams"] == {"lr": 0.1, "batch_size": 32.0, "amp": True, "name": "a"}
