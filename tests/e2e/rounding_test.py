"""What rounding.py lets pass, and what it does not."""
import pytest
import torch

from rounding import assert_rounded_alike


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_in_another_order_are_alike_and_wrong_ones_are_not(dtype):
    torch.manual_seed(1)
    a, b = torch.randn(40, 64, dtype=dtype), torch.randn(64, 50, dtype=dtype)
    product = a @ b
    one_by_one = sum(a[:, i:i + 1] * b[i:i + 1] for i in reversed(range(64)))
    assert not torch.equal(product, one_by_one)
    assert_rounded_alike(one_by_one, product, 64)
    with_one_factor_off = a.clone()
    with_one_factor_off[3, 5] *= 1.01
    for wrong in (product * 1.001, -product, product + product.abs().max() / 1000, with_one_factor_off @ b, torch.full_like(product, torch.nan)):
        with pytest.raises(AssertionError):
            assert_rounded_alike(wrong, product, 64)
    for wrong in (product[:39], product.float().half()):
        with pytest.raises(AssertionError):
            assert_rounded_alike(wrong, product, 64)


def test_whole_numbers_are_the_same():
    assert_rounded_alike(torch.tensor([1, 2]), torch.tensor([1, 2]), 100)
    assert_rounded_alike(torch.empty(0), torch.empty(0), 100)
    with pytest.raises(AssertionError):
        assert_rounded_alike(torch.tensor([1, 2]), torch.tensor([1, 3]), 100)
