"""tools/dev/pytorch_names.txt: PyTorch has each name that the list gives to a name of namespace cohort."""
import pathlib
import pkgutil
import re

import pytest

LIST = pathlib.Path(__file__).resolve().parents[2] / "tools/dev/pytorch_names.txt"
NAMES = re.findall(r"(?m)^\w+(?:::)? (torch\.[\w.]+)$", LIST.read_text())


def test_the_list_is_read():
    assert "torch.distributed.all_reduce" in NAMES and "torch.optim" in NAMES


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_pytorch_has_the_name(name):
    pkgutil.resolve_name(name)
