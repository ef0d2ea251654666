#include "cohort/data/loader/collate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/data/loader/batch_memory.h"

namespace cohort::data {
namespace {

// Whether the tensors can be stacked into existing memory.
bool are_plain_and_alike(const std::vector<at::Tensor>& examples) {
  const at::Tensor& first = examples.front();
  return std::all_of(examples.begin(), examples.end(), [&](const at::Tensor& example) {
    return example.is_cpu() && example.layout() == at::kStrided && !example.requires_grad() &&
           example.scalar_type() == first.scalar_type() && example.sizes() == first.sizes();
  });
}

}  // namespace

at::Tensor collate(const std::vector<at::Tensor>& examples) {
  detail::check_has_examples(!examples.empty());
  TORCH_CHECK(examples.front().layout() == at::kStrided,
              "Batches of sparse tensors are not currently supported by the default collate_fn; please provide a "
              "custom collate_fn to handle them appropriately.");
  detail::BatchMemory* const memory = detail::BatchMemory::current();
  const size_t num_bytes = examples.front().nbytes() * examples.size();
  if (!memory || num_bytes < detail::BatchMemory::kLeastBytes || !are_plain_and_alike(examples)) {
    return at::stack(examples);
  }
  auto sizes = examples.front().sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(examples.size()));
  auto batch = memory->make_empty(sizes, examples.front().scalar_type());
  at::stack_out(batch, examples);
  return batch;
}

namespace detail {

at::Tensor collate_integers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

at::Tensor collate_floats(const std::vector<double>& values, at::ScalarType type) { return at::tensor(values, type); }

at::Tensor collate_bools(const std::vector<bool>& values) {
  at::Tensor result = at::empty({static_cast<int64_t>(values.size())}, at::kBool);
  bool* data = result.mutable_data_ptr<bool>();
  for (const bool value : values) *data++ = value;
  return result;
}

void check_equal_size(bool is_equal) { TORCH_CHECK(is_equal, "each element in list of batch should be of equal size"); }

void check_has_examples(bool has_any) {
  TORCH_CHECK_INDEX(has_any,
                    "list index out of range\n  hint: leave batches without samples out of the batch sampler, or give "
                    "the DataLoader a collate function of your own");
}

}  // namespace detail
}  // namespace cohort::data
