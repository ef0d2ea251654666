#include "cohort/comm/shm/sparse_reduction.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "cohort/comm/shm/element_types.h"
#include "cohort/comm/tensors/contiguous_copies.h"
#include "cohort/comm/tensors/operation_text.h"

namespace cohort::comm {
namespace {

constexpr size_t kMaxDims = 16;
// The number of sparse dimensions, of all dimensions, their sizes, and the number of entries.
using SparseDescription = std::array<int64_t, kMaxDims + 3>;

SparseDescription describe(const at::Tensor& tensor) {
  SparseDescription description{};
  description[0] = tensor.sparse_dim();
  description[1] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), description.begin() + 2);
  description.back() = tensor._nnz();
  return description;
}

bool same_sizes(const SparseDescription& a, const SparseDescription& b) {
  return std::equal(a.begin(), a.end() - 1, b.begin());
}

// Gathers every rank's rows (dimension 0), in rank order.
shm::Outcome gather_rows(shm::Group& group, const shm::CallOptions& options, const at::Tensor& mine,
                         const std::vector<int64_t>& rows, at::Tensor& all) {
  auto sizes = mine.sizes().vec();
  sizes[0] = 0;
  for (const auto count : rows) sizes[0] += count;
  all = at::empty(sizes, mine.options());
  const auto size = static_cast<size_t>(group.world_size());
  const std::vector<const void*> ins(size, mine.const_data_ptr());
  const std::vector<size_t> in_counts(size, elements_of(mine).count);
  std::vector<void*> outs;
  std::vector<size_t> out_counts;
  int64_t begin = 0;
  for (const auto count : rows) {
    const auto part = all.narrow(0, begin, count);
    outs.push_back(part.data_ptr());
    out_counts.push_back(elements_of(part).count);
    begin += count;
  }
  return group.all_to_all(ins.data(), in_counts.data(), outs.data(), out_counts.data(), elements_of(mine).dtype,
                          options);
}

}  // namespace

void check_sparse_reduction(const char* operation, const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kSparse && tensor.is_cpu(), "[cohort] ", operation,
                    " on backend \"shm\" needs a sparse CPU tensor, got one of layout ", tensor.layout(), " on ",
                    tensor.device());
  TORCH_CHECK_VALUE(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG, "[cohort] ", operation,
                    " does not support ReduceOp.", reduce_op_name(op), " on sparse tensors");
  TORCH_CHECK_VALUE(tensor.dim() <= static_cast<int64_t>(kMaxDims), "[cohort] ", operation,
                    " supports sparse tensors of up to ", kMaxDims, " dimensions, got ", tensor.dim());
}

shm::Outcome sum_sparse(shm::Group& group, const shm::CallOptions& options, const at::Tensor& input, at::Tensor output,
                        bool is_average) {
  const at::NoGradGuard no_grad;
  const auto mine = describe(input);
  std::vector<SparseDescription> theirs(static_cast<size_t>(group.world_size()));
  std::vector<void*> outs;
  for (auto& description : theirs) outs.push_back(description.data());
  if (auto failure = group.all_gather(mine.data(), outs.data(), {shm::DType::kInt64, mine.size()}, options)) {
    return failure;
  }
  std::vector<int64_t> num_entries;
  for (const auto& description : theirs) {
    TORCH_CHECK_VALUE(same_sizes(description, theirs[0]),
                      "[cohort] all_reduce of sparse tensors needs one shape on all ranks");
    num_entries.push_back(description.back());
  }
  // One row per entry.
  const auto indices = as_plain(input._indices().t());
  const auto values = as_plain(input._values());
  at::Tensor all_indices;
  at::Tensor all_values;
  if (auto failure = gather_rows(group, options, indices, num_entries, all_indices)) return failure;
  if (auto failure = gather_rows(group, options, values, num_entries, all_values)) return failure;
  auto sum = at::_sparse_coo_tensor_unsafe(all_indices.t(), all_values, input.sizes()).coalesce();
  if (is_average && at::isIntegralType(sum.scalar_type(), /*includeBool=*/false)) {
    sum._values().div_(group.world_size(), "trunc");
  } else if (is_average) {
    sum._values().div_(group.world_size());
  }
  output.copy_(sum);
  return nullptr;
}

}  // namespace cohort::comm
