#include "cohort/parallel/data_parallel/scatter_gather.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>

#include "cohort/base/log/log.h"
#include "cohort/parallel/data_parallel/gather_log.h"

namespace cohort::nn::parallel {
namespace {

// The host waits if the CPU reads the tensor next.
at::Tensor moved_to(const at::Tensor& tensor, const c10::Device& device) {
  return tensor.to(device, /*non_blocking=*/!device.is_cpu());
}

void check_shapes(const std::vector<at::Tensor>& tensors, int64_t dim) {
  auto expected = tensors.front().sizes().vec();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    TORCH_CHECK(tensor.dim() == static_cast<int64_t>(expected.size()),
                "Expected all input tensors to have the same number of dimensions, but tensor at index ", i, " has ",
                tensor.dim(), " dimensions, (expected ", expected.size(), ")");
    expected[dim] = tensor.size(dim);
    TORCH_CHECK(tensor.sizes() == at::IntArrayRef(expected), "Tensor at index ", i, " has invalid shape: got ",
                tensor.sizes(), ", but expected ", at::IntArrayRef(expected));
  }
}

std::vector<c10::IValue> elements_of(const c10::IValue& value) {
  return value.isTuple() ? value.toTupleRef().elements().vec() : value.toListRef().vec();
}

// Makes a list, tuple or dict like `like`, with other elements.
c10::IValue list_like(const c10::IValue& like, std::vector<c10::IValue> elements) {
  if (like.isTuple()) return c10::ivalue::Tuple::create(std::move(elements));
  auto list = like.toList();
  c10::impl::GenericList result(list.elementType());
  for (auto& element : elements) result.push_back(std::move(element));
  return result;
}

c10::IValue dict_like(const c10::IValue& like, const std::vector<c10::IValue>& keys,
                      const std::vector<c10::IValue>& values) {
  const auto dict = like.toGenericDict();
  c10::impl::GenericDict result(dict.keyType(), dict.valueType());
  for (size_t i = 0; i < keys.size(); ++i) result.insert(keys[i], values[i]);
  return result;
}

// Element i of the k-th value is part k of element i; there are as many values as the element with the fewest parts has parts.
std::vector<std::vector<c10::IValue>> scatter_each(const std::vector<c10::IValue>& elements, const Devices& devices,
                                                   int64_t dim) {
  std::vector<std::vector<c10::IValue>> values(devices.size());
  for (const auto& element : elements) {
    const auto parts = scatter_ivalue(element, devices, dim);
    if (parts.size() < values.size()) values.resize(parts.size());
    for (size_t k = 0; k < values.size(); ++k) values[k].push_back(parts[k]);
  }
  return values;
}

std::vector<c10::IValue> gather_each(const std::vector<std::vector<c10::IValue>>& values, const c10::Device& target,
                                     int64_t dim) {
  std::vector<c10::IValue> joined;
  for (size_t i = 0; i < values.front().size(); ++i) {
    joined.push_back(gather_ivalues(
        detail::each(values, [&](const std::vector<c10::IValue>& elements) { return elements[i]; }), target, dim));
  }
  return joined;
}

c10::IValue gather_dicts(const std::vector<c10::IValue>& values, const c10::Device& target, int64_t dim) {
  std::vector<c10::IValue> keys;
  for (const auto& entry : values.front().toGenericDict()) keys.push_back(entry.key());
  std::vector<std::vector<c10::IValue>> by_value;
  for (const auto& value : values) {
    const auto dict = value.toGenericDict();
    TORCH_CHECK_VALUE(dict.size() == keys.size(), "All dicts must have the same number of keys");
    auto& own = by_value.emplace_back();
    for (const auto& key : keys) {
      TORCH_CHECK_VALUE(dict.contains(key), "[cohort] gather: the replicas' dicts differ in keys");
      own.push_back(dict.at(key));
    }
  }
  return dict_like(values.front(), keys, gather_each(by_value, target, dim));
}

}  // namespace

std::vector<at::Tensor> scatter_tensor(const at::Tensor& tensor, const Devices& devices, int64_t dim) {
  if (!tensor.defined()) return std::vector<at::Tensor>(devices.size());
  auto parts = tensor.chunk(static_cast<int64_t>(devices.size()), dim);
  for (size_t k = 0; k < parts.size(); ++k) parts[k] = moved_to(parts[k], devices[k]);
  return parts;
}

at::Tensor gather_tensors(const std::vector<at::Tensor>& tensors, const c10::Device& target, int64_t dim) {
  TORCH_CHECK(!tensors.empty(), "Expected at least one tensor to gather from");
  if (!tensors.front().defined()) return {};
  auto parts = tensors;
  if (dim == 0 && std::all_of(parts.begin(), parts.end(), [](const at::Tensor& part) { return part.dim() == 0; })) {
    base::warn_once(
        "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze and return "
        "a "
        "vector.");
    for (auto& part : parts) part = part.view(1);
  }
  dim = at::maybe_wrap_dim(dim, parts.front().dim());
  check_shapes(parts, dim);
  for (auto& part : parts) part = moved_to(part, target);
  auto joined = at::cat(parts, dim);
  GatherLog::note(joined);
  return joined;
}

std::vector<c10::IValue> scatter_ivalue(const c10::IValue& value, const Devices& devices, int64_t dim) {
  if (value.isTensor()) {
    return detail::each(scatter_tensor(value.toTensor(), devices, dim),
                        [](const at::Tensor& part) { return c10::IValue(part); });
  }
  if (value.isTuple() || value.isList()) {
    return detail::each(scatter_each(elements_of(value), devices, dim),
                        [&](const std::vector<c10::IValue>& elements) { return list_like(value, elements); });
  }
  if (value.isGenericDict()) {
    std::vector<c10::IValue> keys;
    std::vector<c10::IValue> elements;
    for (const auto& entry : value.toGenericDict()) {
      keys.push_back(entry.key());
      elements.push_back(entry.value());
    }
    return detail::each(scatter_each(elements, devices, dim),
                        [&](const std::vector<c10::IValue>& parts) { return dict_like(value, keys, parts); });
  }
  return std::vector<c10::IValue>(devices.size(), value);
}

c10::IValue gather_ivalues(const std::vector<c10::IValue>& values, const c10::Device& target, int64_t dim) {
  TORCH_CHECK(!values.empty(), "Expected at least one tensor to gather from");
  const auto& first = values.front();
  if (first.isNone()) return first;
  for (const auto& value : values) {
    TORCH_CHECK_VALUE(value.tagKind() == first.tagKind(),
                      "[cohort] gather: the replicas returned values of different types, ", first.tagKind(), " and ",
                      value.tagKind());
  }
  if (first.isTensor()) {
    return gather_tensors(detail::each(values, [](const c10::IValue& value) { return value.toTensor(); }), target, dim);
  }
  if (first.isGenericDict()) return gather_dicts(values, target, dim);
  TORCH_CHECK_TYPE(first.isTuple() || first.isList(), "[cohort] gather: values of type ", first.tagKind(),
                   " cannot be joined, only tensors, and lists, tuples and dicts of tensors");
  const auto elements = detail::each(values, elements_of);
  for (const auto& list : elements) detail::check_lengths(elements.front().size(), list.size(), "lists");
  return list_like(first, gather_each(elements, target, dim));
}

void detail::check_lengths(size_t first, size_t other, const char* of_what) {
  TORCH_CHECK_VALUE(first == other, "[cohort] gather: the replicas' ", of_what, " have different lengths, ", first,
                    " and ", other);
}

}  // namespace cohort::nn::parallel
