"""torchvision's transforms, which are Python alone. Its wheel's own library fits another build of LibTorch, and the operators in it, of
which transforms use none, are registered when the package is imported: that part is left out."""
import pathlib
import sys
import types

import torch  # noqa: F401

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / ".venv/share/torchvision"))
sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))

import torchvision.transforms as transforms  # noqa: E402, F401
import torchvision.transforms.v2 as v2  # noqa: E402, F401
from torchvision.transforms import autoaugment, functional  # noqa: E402, F401
