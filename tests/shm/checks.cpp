#include "tests/shm/checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cohort::shm {
namespace {

// Differs by rank, element, operation and salt, so that no wrong peer, root, part or left-over goes unnoticed. Whole numbers, so
// small that float32 holds the product of eight ranks.
template <class T>
T value(const Case& test_case, int rank, size_t index) {
  const auto key = index + 1'000'003 * static_cast<uint64_t>(rank + 1) +
                   7'368'787 * static_cast<uint64_t>(test_case.salt) +
                   31'415'927 * static_cast<uint64_t>(test_case.kind);
  const bool is_product = test_case.op == ReduceOp::kProduct &&
                          (test_case.kind == OpKind::kAllReduce || test_case.kind == OpKind::kReduce ||
                           test_case.kind == OpKind::kReduceScatter);
  const uint64_t range = is_product ? 7 : 251;
  return static_cast<T>((key * 0x9E3779B97F4A7C15 >> 40) % range + 1);
}

template <class T>
T combine(T a, T b, ReduceOp op) {
  switch (op) {
    case ReduceOp::kProduct:
      return static_cast<T>(a * b);
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    default:
      return static_cast<T>(a + b);
  }
}

// Input and output of a rank, as many elements as there are ranks times the count; the output's surplus stays untouched.
template <class T>
class Tensors {
 public:
  /// What no rank sends.
  static constexpr T kUntouched{255};

  Tensors(Group& group, const Case& test_case) : case_(test_case), rank_(group.rank()), size_(group.world_size()) {
    const auto total = case_.count * static_cast<size_t>(size_);
    if (case_.shared && case_.shared_bytes >= 2 * total * sizeof(T)) {
      in_ = reinterpret_cast<T*>(case_.shared);
      out_ = in_ + total;
    } else {
      own_.resize(2 * total + 1);
      in_ = own_.data();
      out_ = in_ + total;
    }
    const int data_rank = case_.data_rank < 0 ? rank_ : case_.data_rank;
    for (size_t i = 0; i < total; ++i) in_[i] = value<T>(case_, data_rank, i + case_.data_shift);
    std::fill(out_, out_ + total, kUntouched);
    if (case_.in_place) out_ = in_;
  }

  T* in(int part = 0) { return in_ + static_cast<size_t>(part) * case_.count; }
  T* out(int part = 0) { return out_ + static_cast<size_t>(part) * case_.count; }
  std::vector<const void*> ins() {
    std::vector<const void*> parts;
    for (int part = 0; part < size_; ++part) parts.push_back(in(part));
    return parts;
  }
  std::vector<void*> outs() {
    std::vector<void*> parts;
    for (int part = 0; part < size_; ++part) parts.push_back(out(part));
    return parts;
  }

  // `part` of the output must be what `expected(index)` gives.
  template <class Expected>
  void expect(int part, Expected expected) {
    for (size_t i = 0; i < case_.count; ++i) {
      if (out(part)[i] == expected(i)) continue;
      ADD_FAILURE() << name_of(case_.kind) << " of " << case_.count << " " << name_of(case_.dtype) << ", rank " << rank_
                    << " of " << size_ << ": element " << i << " of part " << part << " is " << +out(part)[i]
                    << ", not " << +expected(i);
      return;
    }
  }
  void expect_reduced(int source_part) {
    expect(0, [&](size_t i) {
      const auto index = static_cast<size_t>(source_part) * case_.count + i;
      T total = value<T>(case_, 0, index);
      for (int peer = 1; peer < size_; ++peer) total = combine(total, value<T>(case_, peer, index), case_.op);
      return total;
    });
  }
  void expect_part_of(int peer, int source_part, int part) {
    expect(part, [&](size_t i) { return value<T>(case_, peer, static_cast<size_t>(source_part) * case_.count + i); });
  }

 private:
  const Case& case_;
  int rank_;
  int size_;
  std::vector<T> own_;
  T* in_;
  T* out_;
};

template <class T>
Outcome run_reducing(Group& group, const Case& test_case, Tensors<T>& tensors) {
  const Elements elements{test_case.dtype, test_case.count};
  const Reduction reduction{test_case.op};
  if (test_case.kind == OpKind::kAllReduce) {
    if (auto failure = group.all_reduce(tensors.in(), tensors.out(), elements, reduction)) return failure;
    tensors.expect_reduced(0);
  } else if (test_case.kind == OpKind::kReduce) {
    if (auto failure = group.reduce(tensors.in(), tensors.out(), elements, reduction, test_case.root)) return failure;
    if (group.rank() == test_case.root) tensors.expect_reduced(0);
  } else {
    const auto ins = tensors.ins();
    if (auto failure = group.reduce_scatter(ins.data(), tensors.out(), elements, reduction)) return failure;
    tensors.expect_reduced(group.rank());
  }
  return nullptr;
}

// By how many fewer than `count` elements rank a sends to rank b, and b to a: none, one to every other rank, or one only where
// rank 0 takes no part, so that all is even as far as it knows.
size_t left_out(const Case& test_case, int a, int b) {
  const bool is_left_out[] = {false, (a + b) % 2 == 1, a > 0 && b > 0 && a != b};
  return is_left_out[test_case.salt % 3] ? std::min<size_t>(test_case.count, 1) : 0;
}

template <class T>
Outcome run_all_to_all(Group& group, const Case& test_case, Tensors<T>& tensors) {
  const auto ins = tensors.ins();
  const auto outs = tensors.outs();
  std::vector<size_t> counts;
  for (int peer = 0; peer < group.world_size(); ++peer) {
    counts.push_back(test_case.count - left_out(test_case, group.rank(), peer));
  }
  if (auto failure = group.all_to_all(ins.data(), counts.data(), outs.data(), counts.data(), test_case.dtype)) {
    return failure;
  }
  for (int peer = 0; peer < group.world_size(); ++peer) {
    tensors.expect(peer, [&](size_t i) {
      const auto index = static_cast<size_t>(group.rank()) * test_case.count + i;
      return i < counts[static_cast<size_t>(peer)] ? value<T>(test_case, peer, index) : Tensors<T>::kUntouched;
    });
  }
  return nullptr;
}

template <class T>
Outcome run_moving(Group& group, const Case& test_case, Tensors<T>& tensors) {
  const Elements elements{test_case.dtype, test_case.count};
  const int rank = group.rank();
  const auto ins = tensors.ins();
  const auto outs = tensors.outs();
  if (test_case.kind == OpKind::kBroadcast) {
    if (rank == test_case.root) std::copy_n(tensors.in(), test_case.count, tensors.out());
    if (auto failure = group.broadcast(tensors.out(), elements, test_case.root)) return failure;
    tensors.expect_part_of(test_case.root, 0, 0);
  } else if (test_case.kind == OpKind::kAllGather) {
    if (auto failure = group.all_gather(tensors.in(), outs.data(), elements)) return failure;
    for (int peer = 0; peer < group.world_size(); ++peer) tensors.expect_part_of(peer, 0, peer);
  } else if (test_case.kind == OpKind::kGather) {
    const bool is_root = rank == test_case.root;
    if (auto failure = group.gather(tensors.in(), is_root ? outs.data() : nullptr, elements, test_case.root)) {
      return failure;
    }
    for (int peer = 0; is_root && peer < group.world_size(); ++peer) tensors.expect_part_of(peer, 0, peer);
  } else {
    const bool is_root = rank == test_case.root;
    if (auto failure = group.scatter(is_root ? ins.data() : nullptr, tensors.out(), elements, test_case.root)) {
      return failure;
    }
    tensors.expect_part_of(test_case.root, rank, 0);
  }
  return nullptr;
}

template <class T>
Outcome run_typed(Group& group, const Case& test_case) {
  Tensors<T> tensors(group, test_case);
  switch (test_case.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter:
      return run_reducing(group, test_case, tensors);
    case OpKind::kAllToAll:
      return run_all_to_all(group, test_case, tensors);
    default:
      return run_moving(group, test_case, tensors);
  }
}

}  // namespace

Outcome run_case(Group& group, const Case& test_case) {
  if (test_case.kind == OpKind::kBarrier) return group.barrier();
  if (test_case.dtype == DType::kInt64) return run_typed<int64_t>(group, test_case);
  if (test_case.dtype == DType::kUInt8) return run_typed<uint8_t>(group, test_case);
  return run_typed<float>(group, test_case);
}

}  // namespace cohort::shm
