"""Files of weights as other programs write them, read by load_pretrained and by timm."""
import argparse
import json
import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness import BUILD, SOURCE
from model_libraries import timm_builder, timm_helpers, timm_resnet, timm_vit
from model_programs import run_worker

pytestmark = pytest.mark.tier_all  # training does not need these models

SMALL = {"stem_width": 8, "stem_type": "deep", "avg_down": True, "channels": (16, 32, 64, 128)}


def small_resnet(seed, **options):
    """resnet18d with width 16."""
    torch.manual_seed(seed)
    return timm_resnet.ResNet(timm_resnet.BasicBlock, (2, 2, 2, 2), **SMALL, **options)


def small_vit(seed, **options):
    torch.manual_seed(seed)
    return timm_vit.vit_tiny_patch16_224(**options)


def prefixed(prefix, state):
    return {prefix + key: tensor for key, tensor in state.items()}


def write_folder(folder, state, how):
    """With an index, as transformers' save_pretrained writes it, or one file."""
    folder.mkdir()
    if how == "one":
        torch.save(state, folder / "pytorch_model.bin")
        (folder / "config.json").write_text("{}")
        return folder
    names = list(state)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for part, keys in parts.items():
        save_file({key: state[key] for key in keys}, folder / part, {"format": "pt"})
    weight_map = {key: part for part, keys in parts.items() for key in keys}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))
    return folder


def write(how, folder, state, other):
    """A file with `state`, in some of them beside `other`."""
    trained = {"epoch": 3, "arch": "resnet18d", "args": argparse.Namespace(lr=0.1, workers=4, betas=(0.9, 0.99)), "optimizer": {"state": {}, "param_groups": [{"lr": 0.1, "params": [0]}]}}
    path = folder / ("weights.safetensors" if how == "safetensors" else "weights.pth.tar")
    if how == "safetensors":
        save_file(state, path)
    elif how in ("one file in a folder", "folder with an index"):
        return write_folder(folder / "model", state, "one" if how.startswith("one") else "index")
    else:
        torch.save({
            "torch.save": state,
            "the old format": state,
            "of DDP": prefixed("module.", state),
            "of torch.compile in DDP": prefixed("module._orig_mod.", state),
            "of DDP in torch.compile": prefixed("_orig_mod.module.", state),
            "of AveragedModel": {"n_averaged": torch.tensor(7), **prefixed("module.", state)},
            "state_dict": {"state_dict": state, **trained},
            "model": {"model": prefixed("_orig_mod.", state), **trained},
            "state_dict_ema": {"state_dict": other, "state_dict_ema": prefixed("module.", state), **trained},
            "model_ema": {"model": other, "model_ema": state, **trained},
        }[how], path, _use_new_zipfile_serialization=how != "the old format")
    return path


@pytest.mark.parametrize("how", ["torch.save", "the old format", "safetensors", "of DDP", "of torch.compile in DDP", "of DDP in torch.compile",
                                 "of AveragedModel", "state_dict", "model", "state_dict_ema", "model_ema",
                                 "one file in a folder", "folder with an index"])
def test_what_other_programs_write(how, tmp_path):
    state = small_resnet(1, num_classes=10).state_dict()
    path = write(how, tmp_path, state, small_resnet(2, num_classes=10).state_dict())
    report = run_worker("model_pretrained", "resnet18d", path, tmp_path / "results.safetensors", num_classes=10, width=16)
    actual = load_file(tmp_path / "results.safetensors")
    assert actual.keys() == state.keys()
    assert all(torch.equal(actual[key], tensor) for key, tensor in state.items())
    nested = f', its "{how}",' if how in ("state_dict", "model", "state_dict_ema", "model_ema") else ""
    assert report == f'{len(state)} tensors of "{path}"{nested}\n'
    if path.is_file() and how != "of AveragedModel":  # timm itself reads the same
        assert timm_helpers.load_state_dict(str(path)).keys() == state.keys()


def by_timm(model, path, filter_fn=None, first_conv="conv1.0", classifier="fc", **options):
    """What timm makes of a file for 20 classes and 3 channels."""
    source = {"file": str(path), "num_classes": 20, "input_size": (3, 64, 64), "first_conv": first_conv, "classifier": classifier}
    timm_builder.load_pretrained(model, source, filter_fn=filter_fn, **options)
    return model.state_dict()


def assert_fitted(expected, path, name, tmp_path, new=(), **options):
    """All but what begins anew is as timm has it. Returns the report."""
    report = run_worker("model_pretrained", name, path, tmp_path / "results.safetensors", **options)
    actual = load_file(tmp_path / "results.safetensors")
    assert actual.keys() == expected.keys()
    for key, tensor in expected.items():
        if key in new:
            assert actual[key].shape == tensor.shape and actual[key].isfinite().all()
        else:
            torch.testing.assert_close(actual[key], tensor, rtol=1e-6, atol=1e-6, msg=lambda text, k=key: f"{k}: {text}")
    return report.splitlines()[1:]


@pytest.mark.parametrize("channels", [1, 2, 4, 8])
def test_other_channels_as_timm(channels, tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(small_resnet(1, num_classes=20).state_dict(), path)
    expected = by_timm(small_resnet(2, num_classes=20, in_chans=channels), path, num_classes=20, in_chans=channels)
    notes = assert_fitted(expected, path, "resnet18d", tmp_path, num_classes=20, in_channels=channels, width=16)
    how = "summed up" if channels == 1 else "repeated"
    assert notes == [f'  "conv1.0.weight": {how} from 3 channels to {channels}']


def test_other_classes_as_timm(tmp_path):
    path = tmp_path / "weights.pth"
    torch.save(small_resnet(1, num_classes=20).state_dict(), path)
    expected = by_timm(small_resnet(2, num_classes=10), path, num_classes=10)
    notes = assert_fitted(expected, path, "resnet18d", tmp_path, new=("fc.weight", "fc.bias"), num_classes=10, width=16)
    assert notes == ['  "fc": newly initialized: the file\'s is for 20 classes, the model\'s for 10']

    expected = by_timm(small_resnet(2, num_classes=0), path, num_classes=0)
    notes = assert_fitted(expected, path, "resnet18d", tmp_path, num_classes=0, width=16)
    assert notes == ['  "fc": left out: the model has no classifier']


def test_a_file_without_classifier(tmp_path):
    path = tmp_path / "weights.safetensors"
    state = small_resnet(1, num_classes=0).state_dict()
    save_file(state, path)
    expected = {**small_resnet(2, num_classes=10).state_dict(), **state}
    notes = assert_fitted(expected, path, "resnet18d", tmp_path, new=("fc.weight", "fc.bias"), num_classes=10, width=16)
    assert notes == ['  "fc": newly initialized: the file has none']


@pytest.mark.parametrize("size", [64, 96, 224])
def test_other_image_sizes_as_timm(size, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(small_vit(1, num_classes=20, img_size=112).state_dict(), path)
    model = small_vit(2, num_classes=7, img_size=size)
    expected = by_timm(model, path, timm_vit.checkpoint_filter_fn, "patch_embed.proj", "head", num_classes=7)
    notes = assert_fitted(expected, path, "vit_tiny", tmp_path, new=("head.weight", "head.bias"), num_classes=7, image_size=size)
    assert notes == [f'  "pos_embed": interpolated from 7x7 patches to {size // 16}x{size // 16}',
                     '  "head": newly initialized: the file\'s is for 20 classes, the model\'s for 7']


def test_torchvisions_old_files_have_no_counters(tmp_path):
    state = {key: tensor for key, tensor in small_resnet(1, num_classes=10).state_dict().items()
             if not key.endswith("num_batches_tracked")}
    torch.save(state, tmp_path / "weights.pth")
    run_worker("model_pretrained", "resnet18d", tmp_path / "weights.pth", tmp_path / "results.safetensors", num_classes=10, width=16)
    actual = load_file(tmp_path / "results.safetensors")
    assert all(torch.equal(actual[key], tensor) for key, tensor in state.items())


def test_half_precision_becomes_float(tmp_path):
    state = {key: tensor.half() if tensor.is_floating_point() else tensor for key, tensor in small_resnet(1, num_classes=10).state_dict().items()}
    torch.save(state, tmp_path / "weights.pth")
    run_worker("model_pretrained", "resnet18d", tmp_path / "weights.pth", tmp_path / "results.safetensors", num_classes=10, width=16)
    actual = load_file(tmp_path / "results.safetensors")
    assert all(torch.equal(actual[key], tensor.float() if tensor.is_floating_point() else tensor) for key, tensor in state.items())


def test_the_example_of_cifar_begins_with_a_file(tmp_path):
    torch.manual_seed(0)
    net = timm_resnet.ResNet(timm_resnet.Bottleneck, (3, 4, 6, 3), stem_width=32, stem_type="deep", avg_down=True)
    save_file(net.state_dict(), tmp_path / "resnet50d.safetensors")
    subprocess.run([BUILD / "bin" / "cohort-data", "make", "cifar10", "--root", tmp_path / "data", "--samples", "50"], check=True, timeout=300,
                   capture_output=True)
    command = [BUILD / "bin" / "examples" / "cifar_trainer", "--config", SOURCE / "examples" / "cifar" / "resnet50d.toml", "--root",
               tmp_path / "data", "--pretrained", tmp_path / "resnet50d.safetensors", "--image-size", "64", "--precision", "bf16-mixed",
               "--batch-size", "4", "--fast-dev-run", "2", "--folder", tmp_path / "run"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, COHORT_LOG_LEVEL="info"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test accuracy" in done.stdout and not (tmp_path / "run").exists()
    assert '"fc": newly initialized' in done.stderr, done.stderr  # what was made to fit is reported
