#include "cohort/comm/process/tensor_message.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "cohort/base/text/text.h"
#include "cohort/comm/process/shared_storage.h"

namespace cohort::comm {
namespace {

using base::Error;

bool is_plain_dtype(int32_t number) {
  if (number < 0 || number >= static_cast<int32_t>(c10::ScalarType::NumOptions)) return false;
  const auto dtype = static_cast<c10::ScalarType>(number);
  return dtype != c10::ScalarType::Undefined && !c10::isQIntType(dtype) && !c10::isBitsType(dtype);
}

// Returns the bytes from the storage's begin to the last element's end. Absent on overflow, and for negative sizes or strides.
std::optional<uint64_t> end_of_elements(const TensorMessage& message) {
  int64_t last = message.element_offset;
  int64_t num_elements = 1;
  bool bad = last < 0;
  for (uint32_t i = 0; i < message.dimensions; ++i) {
    bad |= message.sizes[i] < 0 || message.strides[i] < 0;
    bad |= __builtin_mul_overflow(num_elements, message.sizes[i], &num_elements);
  }
  if (bad) return std::nullopt;
  if (num_elements == 0) return 0;
  for (uint32_t i = 0; i < message.dimensions; ++i) {
    int64_t extent = 0;
    bad |= __builtin_mul_overflow(message.sizes[i] - 1, message.strides[i], &extent);
    bad |= __builtin_add_overflow(last, extent, &last);
  }
  uint64_t end = 0;
  bad |= __builtin_mul_overflow(static_cast<uint64_t>(last) + 1,
                                c10::elementSize(static_cast<c10::ScalarType>(message.dtype)), &end);
  return bad ? std::nullopt : std::optional(end);
}

}  // namespace

TensorMessage encode_tensor(const at::Tensor& tensor) {
  TensorMessage message;
  message.dtype = static_cast<int32_t>(tensor.scalar_type());
  message.dimensions = static_cast<uint32_t>(tensor.dim());
  message.requires_grad = tensor.requires_grad();
  const auto shared = find_shared(tensor.storage());
  message.memory_bytes = shared.block ? shared.block->size() : 0;
  message.storage_offset = shared.offset;
  message.storage_bytes = tensor.storage().nbytes();
  message.element_offset = tensor.storage_offset();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), message.sizes);
  std::copy(tensor.strides().begin(), tensor.strides().end(), message.strides);
  return message;
}

base::Result<void> check_message(const TensorMessage& message) {
  const TensorMessage expected;
  if (std::memcmp(message.magic, expected.magic, sizeof(message.magic)) != 0) return Error("it is not a tensor");
  if (message.version != expected.version) {
    return Error(
        fmt::format("it has format {}, and this release of Cohort knows {}", message.version, expected.version));
  }
  if (!is_plain_dtype(message.dtype)) return Error(fmt::format("its dtype, number {}, is not known", message.dtype));
  if (message.dimensions > TensorMessage::kMaxDimensions) {
    return Error(fmt::format("it has {} dimensions", message.dimensions));
  }
  const auto dtype = static_cast<c10::ScalarType>(message.dtype);
  if (message.requires_grad > 1 ||
      (message.requires_grad && !c10::isFloatingType(dtype) && !c10::isComplexType(dtype))) {
    return Error(fmt::format("it requires a gradient, which dtype {} cannot have", c10::toString(dtype)));
  }
  if (message.storage_offset > message.memory_bytes ||
      message.storage_bytes > message.memory_bytes - message.storage_offset) {
    return Error(fmt::format("its storage, {} bytes from byte {} on, is not within its memory of {} bytes",
                             message.storage_bytes, message.storage_offset, message.memory_bytes));
  }
  const auto end = end_of_elements(message);
  if (!end || *end > message.storage_bytes) {
    return Error(fmt::format("its elements are not within its storage of {} bytes", message.storage_bytes));
  }
  return {};
}

at::Tensor decode_tensor(const TensorMessage& message, const c10::Storage& storage) {
  const at::IntArrayRef sizes(message.sizes, message.dimensions);
  const at::IntArrayRef strides(message.strides, message.dimensions);
  auto tensor = at::empty({0}, at::TensorOptions().dtype(static_cast<c10::ScalarType>(message.dtype)));
  tensor.set_(storage, message.element_offset, sizes, strides);
  if (message.requires_grad) tensor.set_requires_grad(true);
  return tensor;
}

}  // namespace cohort::comm
