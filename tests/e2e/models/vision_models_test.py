"""The C++ ResNets, vision transformers and small models beside torchvision's, timm's and the tutorials': names, shapes, initial values,
forward and backward passes."""
import ast

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import tutorial_models
from model_libraries import timm_resnet, timm_vit, torchvision_resnet
from model_programs import assert_same_passes, run_worker, scramble

pytestmark = pytest.mark.tier_all  # training does not need these models

TORCHVISION = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "wide_resnet101_2",
               "resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d"]
D_VARIANTS = ["resnet18d", "resnet34d", "resnet50d", "resnet101d"]
VITS = ["vit_tiny", "vit_small", "vit_base"]
TUTORIALS = ["SimpleModel", "ToyModel", "ToyMpModel", "ImageClassifier", "TrainModel"]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make(name, **options):
    if name in TORCHVISION:
        return getattr(torchvision_resnet, name)(**options)
    if name in D_VARIANTS:
        return getattr(timm_resnet, name)(**options)
    if name in VITS:
        return getattr(timm_vit, name + "_patch16_224")(**options)
    return getattr(tutorial_models, name)()


@pytest.mark.parametrize("name", TORCHVISION + D_VARIANTS + VITS + TUTORIALS)
def test_names_and_shapes(name):
    with torch.device("meta"):
        model = make(name)
    expected = {key: list(tensor.shape) for key, tensor in model.state_dict().items()}
    lines = [line.split(" ", 1) for line in run_worker("model_shapes", name).splitlines()]
    assert {key: ast.literal_eval(shape) for key, shape in lines} == expected
    assert [key for key, _ in lines] == list(expected)


@pytest.mark.parametrize("name", TORCHVISION[:5])
def test_timm_has_torchvisions_names(name):
    """So that the files of both fit the same models."""
    with torch.device("meta"):
        timms, torchvisions = getattr(timm_resnet, name)(), make(name)
    assert [(key, tensor.shape) for key, tensor in timms.state_dict().items()] == \
        [(key, tensor.shape) for key, tensor in torchvisions.state_dict().items()]


@pytest.mark.parametrize("name, python, options", [
    ("resnet18", {}, {}),
    ("resnet34", {"zero_init_residual": True}, {"zero_init_last": True}),
    ("resnext50_32x4d", {"num_classes": 10}, {"num_classes": 10}),
    ("resnet50d", {"num_classes": 10}, {"num_classes": 10}),
    ("resnet18d", {"zero_init_last": False}, {"zero_init_last": False}),
    ("vit_tiny", {"num_classes": 10, "img_size": 64}, {"num_classes": 10, "image_size": 64}),
    *((name, {}, {}) for name in TUTORIALS)])
def test_the_same_seed_gives_the_same_weights(name, python, options, tmp_path):
    torch.manual_seed(11)
    expected = make(name, **python).state_dict()
    run_worker("model_seeded", name, 11, tmp_path / "seeded.safetensors", **options)
    actual = load_file(tmp_path / "seeded.safetensors")
    assert actual.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(actual[key], tensor), key


def images(count=4, size=64, channels=3):
    return torch.randn(count, channels, size, size), torch.randint(10, (count,))


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnext50_32x4d", "resnet18d", "resnet50d"])
def test_passes_of_resnets(name, tmp_path):
    torch.manual_seed(0)
    model = scramble(make(name, num_classes=10))
    assert_same_passes(model, name, *images(), tmp_path, num_classes=10)


def test_passes_of_a_vision_transformer(tmp_path):
    torch.manual_seed(0)
    model = scramble(make("vit_tiny", num_classes=10, img_size=64))
    assert_same_passes(model, "vit_tiny", *images(), tmp_path, num_classes=10, image_size=64)


@pytest.mark.parametrize("name", ["resnet18", "resnet50d"])
def test_other_widths_channels_and_stems(name, tmp_path):
    """What neither library has by that name: small inputs, made in Python by changing the first layers."""
    torch.manual_seed(0)
    if name == "resnet18":
        model = make(name, num_classes=10)
        model.conv1 = nn.Conv2d(1, 64, 3, 1, 1, bias=False)
        options = {"in_channels": 1}
    else:
        block, stages = timm_resnet.Bottleneck, (3, 4, 6, 3)
        model = timm_resnet.ResNet(block, stages, num_classes=10, in_chans=1, stem_width=8, stem_type="deep", avg_down=True,
                                   channels=(16, 32, 64, 128))
        model.conv1[0].stride = (1, 1)
        options = {"in_channels": 1, "width": 16}
    model.maxpool = nn.Identity()
    assert_same_passes(scramble(model), name, *images(4, 32, 1), tmp_path, num_classes=10, is_small_input=1, **options)


@pytest.mark.parametrize("name, inputs", [("SimpleModel", (128,)), ("ImageClassifier", (3, 32, 32)), ("TrainModel", (3, 16, 24)),
                                          ("ToyModel", (10,)), ("ToyMpModel", (10,))])
def test_passes_of_the_tutorials_models(name, inputs, tmp_path):
    torch.manual_seed(0)
    assert_same_passes(make(name), name, torch.randn(4, *inputs), torch.randint(5, (4,)), tmp_path)


@pytest.mark.parametrize("layout", ["channels_last", "bfloat16"])
@pytest.mark.parametrize("name", ["resnet18", "resnet50d"])
def test_channels_last_and_bfloat16(name, layout, tmp_path):
    torch.manual_seed(0)
    model = scramble(make(name, num_classes=10))
    assert_same_passes(model, name, *images(), tmp_path, layout, num_classes=10)
