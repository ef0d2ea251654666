"""torchvision's and timm's models. Both packages import much that other builds of PyTorch or other packages are needed for, so that only
the modules of models are imported."""
import importlib
import pathlib
import sys
import types

import torch  # noqa: F401

SHARE = pathlib.Path(__file__).resolve().parents[3] / ".venv/share"


def bare_package(name):
    """A package whose __init__ is not run."""
    package = types.ModuleType(name)
    package.__path__ = [str(SHARE / "timm" / name.replace(".", "/"))]
    sys.modules[name] = package
    return package


sys.path += [str(SHARE / "torchvision"), str(SHARE / "timm")]
sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))
bare_package("timm").__version__ = "0"
bare_package("timm.models")
vars(bare_package("timm.data")).update(vars(importlib.import_module("timm.data.constants")))

from timm.models import _builder as timm_builder  # noqa: E402, F401
from timm.models import _helpers as timm_helpers  # noqa: E402, F401
from timm.models import resnet as timm_resnet  # noqa: E402, F401
from timm.models import vision_transformer as timm_vit  # noqa: E402, F401
from torchvision.models import resnet as torchvision_resnet  # noqa: E402, F401
