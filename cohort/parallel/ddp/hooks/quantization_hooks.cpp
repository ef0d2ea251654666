#include "cohort/parallel/ddp/hooks/quantization_hooks.h"

#include <ATen/ATen.h>

#include <limits>
#include <tuple>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/parallel/ddp/hooks/all_reduce_hook.h"

namespace cohort::ddp {
namespace {

constexpr int64_t kChannelElements = 512;
constexpr double kLargest = 255;

TensorList gather_from_all(const at::Tensor& mine, const Group& group) {
  TensorList all;
  for (int rank = 0; rank < group->getSize(); ++rank) all.push_back(at::zeros_like(mine));
  all_gather(all, mine, {.group = group});
  return all;
}

// Row 0: scales; row 1: zero points. `low`, `high`: smallest and largest element of each channel.
at::Tensor scales_and_zero_points(at::Tensor low, at::Tensor high) {
  TORCH_CHECK((low <= high).all().item<bool>(), "min ", low, " should be less than max ", high,
              ". A communication hook cannot quantize gradients that are NaN");
  low = at::minimum(low, at::zeros_like(low));
  high = at::maximum(high, at::zeros_like(high));
  auto scale = (high - low) / kLargest;
  scale = at::maximum(scale, at::full_like(scale, std::numeric_limits<float>::epsilon()));
  const auto zero_point = at::clamp(at::neg(at::round(low / scale).to(at::kInt)), 0, kLargest);
  return at::stack({scale, zero_point.to(at::kFloat)});
}

// `values`: a row for each channel; `scaling`: as scales_and_zero_points gives it.
at::Tensor quantize(const at::Tensor& values, const at::Tensor& scaling) {
  const auto in_dtype = scaling.to(values.scalar_type()).unsqueeze(2);  // as in Python for a number beside a tensor
  return at::clamp(at::round(values / in_dtype[0]) + in_dtype[1], 0, kLargest).to(at::kByte);
}

at::Tensor dequantize(const at::Tensor& integers, const at::Tensor& scaling) {
  return scaling[0].unsqueeze(1) * (integers.to(at::kFloat) - scaling[1].unsqueeze(1));
}

// The average of all ranks' channels.
at::Tensor average_of_channels(const at::Tensor& channels, const Group& group) {
  const auto [low, high] = at::aminmax(channels.to(at::kFloat), /*dim=*/1);
  const auto scalings = gather_from_all(scales_and_zero_points(low, high), group);
  const auto integers = gather_from_all(quantize(channels, scalings[group->getRank()]), group);
  auto sum = at::zeros(channels.sizes(), channels.options().dtype(at::kFloat));
  for (size_t rank = 0; rank < integers.size(); ++rank) sum += dequantize(integers[rank], scalings[rank]);
  return sum / group->getSize();
}

}  // namespace

CommHookFuture quantization_pertensor_hook(const Group& process_group, GradBucket& bucket) {
  const at::NoGradGuard no_grad;
  const auto& buffer = bucket.buffer();
  if (buffer.numel() == 0) return completed_future(buffer);  // it has no maximum
  return completed_future(average_of_channels(buffer.unsqueeze(0), group_of_hook(process_group)).flatten());
}

CommHookFuture quantization_perchannel_hook_of_size(const Group& process_group, GradBucket& bucket,
                                                    int64_t bucket_size) {
  const at::NoGradGuard no_grad;
  const auto& buffer = bucket.buffer();
  // Adds a full channel of padding even if the sizes fit, as Python does: the bytes on the wire are the same.
  const auto padding = bucket_size - buffer.numel() % bucket_size;
  const auto channels = at::constant_pad_nd(buffer, {0, padding}).view({-1, bucket_size});
  return completed_future(
      average_of_channels(channels, group_of_hook(process_group)).flatten().narrow(0, 0, buffer.numel()));
}

CommHookFuture quantization_perchannel_hook(const Group& process_group, GradBucket& bucket) {
  return quantization_perchannel_hook_of_size(process_group, bucket, kChannelElements);
}

}  // namespace cohort::ddp
