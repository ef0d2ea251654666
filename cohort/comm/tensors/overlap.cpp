#include "cohort/comm/tensors/overlap.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <functional>

#include "cohort/comm/tensors/contiguous_copies.h"
#include "cohort/comm/tensors/operation_text.h"

namespace cohort::comm {
namespace {

struct Extent {
  const std::byte* begin;
  const std::byte* end;
  bool is_output;
};

void add_extents(std::vector<Extent>& extents, const std::vector<at::Tensor>& tensors, bool are_outputs) {
  for (const auto& tensor : tensors) {
    if (tensor.layout() != at::kStrided || tensor.numel() == 0) continue;
    int64_t last = 0;
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
    const auto* const begin = static_cast<const std::byte*>(tensor.const_data_ptr());
    extents.push_back({begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size()), are_outputs});
  }
}

}  // namespace

bool overlap(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  std::vector<Extent> extents;
  extents.reserve(outputs.size() + inputs.size());
  add_extents(extents, outputs, true);
  add_extents(extents, inputs, false);
  std::sort(extents.begin(), extents.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  const std::byte* end_of_outputs = nullptr;
  const std::byte* end_of_all = nullptr;
  for (const auto& extent : extents) {
    if (extent.begin < (extent.is_output ? end_of_all : end_of_outputs)) return true;
    if (extent.is_output) end_of_outputs = std::max(end_of_outputs, extent.end);
    end_of_all = std::max(end_of_all, extent.end);
  }
  return false;
}

bool share_elements(const at::Tensor& first, const at::Tensor& second) {
  if (!overlap({first}, {second})) return false;
  const at::NoGradGuard no_grad;
  const auto* const begin = std::min(first.const_data_ptr(), second.const_data_ptr(), std::less<>());
  // Marks the bytes of each tensor in a mask that begins at the first byte of either tensor.
  const auto bytes_in = [&](const at::Tensor& mask, const at::Tensor& tensor) {
    auto sizes = tensor.sizes().vec();
    auto strides = tensor.strides().vec();
    for (auto& stride : strides) stride *= static_cast<int64_t>(tensor.element_size());
    sizes.push_back(static_cast<int64_t>(tensor.element_size()));
    strides.push_back(1);
    const auto offset = static_cast<const std::byte*>(tensor.const_data_ptr()) - static_cast<const std::byte*>(begin);
    return mask.as_strided(sizes, strides, offset);
  };
  std::vector<Extent> extents;
  add_extents(extents, {first, second}, false);
  const auto* const end = std::max(extents[0].end, extents[1].end);
  const auto mask = at::zeros({end - static_cast<const std::byte*>(begin)}, at::kByte);
  bytes_in(mask, first).fill_(1);
  return bytes_in(mask, second).any().item<bool>();
}

bool is_in_place(const at::Tensor& part, const at::Tensor& whole, int index) {
  if (!is_plain(part) || !is_plain(whole)) return false;
  const auto* const begin = static_cast<const std::byte*>(whole.const_data_ptr());
  return part.const_data_ptr() == begin + static_cast<size_t>(index) * part.nbytes();
}

void check_can_be_written(const char* name, const std::vector<at::Tensor>& outputs) {
  for (const auto& tensor : outputs) {
    TORCH_CHECK_VALUE(tensor.layout() != at::kStrided || at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
                      "[cohort] ", name, " cannot write to a tensor whose elements share memory, got shape ",
                      shape_text(tensor.sizes()), " with strides ", tensor.strides(), "; pass a clone() of it");
  }
}

}  // namespace cohort::comm
