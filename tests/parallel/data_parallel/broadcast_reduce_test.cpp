#include "cohort/parallel/data_parallel/broadcast_reduce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/require.h"

namespace cohort::nn::parallel {
namespace {

using test::error_of;
using TensorVector = std::vector<at::Tensor>;

// Of several dtypes, shapes and layouts; each value is there once.
TensorVector many_tensors(int64_t first) {
  int64_t next = first;
  const auto dense = [&](at::IntArrayRef sizes, at::ScalarType dtype) {
    const auto count = c10::multiply_integers(sizes);
    const auto tensor = at::arange(next, next + count, at::kDouble).view(sizes).to(dtype);
    next += count;
    return tensor;
  };
  return {dense({3, 2}, at::kFloat),
          dense({4}, at::kDouble),
          dense({5}, at::kFloat),
          dense({}, at::kFloat),
          at::diag(dense({3}, at::kFloat)).to_sparse(),
          dense({2, 2}, at::kDouble),
          dense({0}, at::kFloat)};
}

void expect_equal(const at::Tensor& ours, const at::Tensor& theirs) {
  EXPECT_EQ(ours.dtype(), theirs.dtype());
  EXPECT_EQ(ours.layout(), theirs.layout());
  EXPECT_TRUE(at::equal(ours.to_dense(), theirs.to_dense()));
}

TEST(BroadcastReduce, CopiesATensor) {
  const auto tensor = at::arange(6, at::kFloat).view({2, 3});
  const auto copies = broadcast(tensor, {at::kCPU, at::kCPU});
  EXPECT_TRUE(copies[0].is_same(tensor));
  EXPECT_FALSE(copies[1].is_alias_of(tensor));
  expect_equal(copies[1], tensor);
}

TEST(BroadcastReduce, CopiesManyTensorsInPiecesOfAnySize) {
  for (const size_t buffer_size : {1, 24, 40, 1 << 20}) {
    const auto tensors = many_tensors(1);
    const auto copies = broadcast_coalesced(tensors, {at::kCPU, at::kCPU, at::kCPU}, buffer_size);
    ASSERT_EQ(copies.size(), 3);
    for (size_t k = 0; k < 3; ++k) {
      ASSERT_EQ(copies[k].size(), tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) {
        expect_equal(copies[k][i], tensors[i]);
        EXPECT_EQ(copies[k][i].is_same(tensors[i]), k == 0);
      }
    }
    copies[1][0].fill_(-1);
    EXPECT_EQ(copies[1][2]._version(), 0) << "each counts its own versions";
    expect_equal(copies[2][0], tensors[0]);
  }
}

TEST(BroadcastReduce, AddsInTheOrderOfTheDevicesFromTheDestinationOn) {
  // In another order the small ones are lost.
  const auto large = at::full({2}, 1e8), small = at::full({2}, 3.0);
  expect_equal(reduce_add({small, small, large}, at::kCPU), small + small + large);
  const auto single = at::ones({2});
  EXPECT_TRUE(reduce_add({single}, at::kCPU).is_same(single));
  EXPECT_TRUE(at::equal(small, at::full({2}, 3.0))) << "inputs stay";
}

TEST(BroadcastReduce, AddsManyTensorsInPiecesOfAnySize) {
  for (const size_t buffer_size : {1, 24, 40, 1 << 20}) {
    const auto a = many_tensors(1), b = many_tensors(100), c = many_tensors(1000);
    const auto sums = reduce_add_coalesced({a, b, c}, at::kCPU, buffer_size);
    ASSERT_EQ(sums.size(), a.size());
    for (size_t i = 0; i < sums.size(); ++i) expect_equal(sums[i], a[i] + b[i] + c[i]);
    expect_equal(a[0], many_tensors(1)[0]);
  }
}

TEST(BroadcastReduce, SparseAndDenseAddUpToDense) {
  const auto dense = at::ones({3, 3}), sparse = at::eye(3).to_sparse();
  const auto sums = reduce_add_coalesced({{sparse}, {dense}}, at::kCPU);
  expect_equal(sums.front(), at::ones({3, 3}) + at::eye(3));
}

TEST(BroadcastReduce, ErrorsMessages) {
  const auto pair = at::ones({2}), triple = at::ones({3, 1});
  const c10::Device meta(at::kMeta);
  EXPECT_EQ(error_of([&] {
              broadcast_coalesced({pair, at::empty({1}, meta)}, {at::kCPU});
            }),
            "[cohort] All tensors must be on devices[0]: cpu, got one on meta");
  EXPECT_EQ(error_of([&] { broadcast_coalesced({pair}, {}); }),
            "[cohort] broadcast_coalesced needs at least one device");
  EXPECT_EQ(error_of([&] { broadcast_coalesced({pair}, {at::kCPU}, 0); }),
            "[cohort] buffer_size must be positive, got 0");
  EXPECT_EQ(error_of([&] {
              reduce_add({pair, triple}, at::kCPU);
            }),
            "input 1 has invalid size: got 3x1, but expected 2");
  EXPECT_EQ(error_of([&] { reduce_add({pair}, meta); }),
            "reduce_add expects destination to be on the same device with one of the tensors, got meta");
  EXPECT_EQ(error_of([&] { reduce_add({}, at::kCPU); }), "[cohort] reduce_add needs at least one tensor");
  EXPECT_EQ(error_of([&] {
              reduce_add_coalesced({{pair}, {pair.to(at::kDouble)}}, at::kCPU);
            }),
            "[cohort] reduce_add_coalesced: tensors to add must have one dtype and device type, got float on cpu and "
            "double on cpu");
  EXPECT_EQ(error_of([&] {
              broadcast_coalesced({pair}, {at::kCPU, meta});
            }),
            "[cohort] broadcast_coalesced: devices must be of one type, got cpu and meta");
  EXPECT_EQ(error_of([&] { reduce_add_coalesced({}, at::kCPU); }),
            "[cohort] reduce_add_coalesced needs the tensors of at least one device");
  EXPECT_EQ(error_of([&] {
              reduce_add_coalesced({{pair, pair}, {pair}}, at::kCPU);
            }),
            "[cohort] reduce_add_coalesced: devices have different numbers of tensors, 2 and 1");
  EXPECT_EQ(error_of([&] {
              reduce_add_coalesced({{pair}, {triple}}, at::kCPU);
            }),
            "input 1 has invalid size: got 3x1, but expected 2");
}

}  // namespace
}  // namespace cohort::nn::parallel
