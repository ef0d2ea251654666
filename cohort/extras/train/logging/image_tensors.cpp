#include "cohort/extras/train/logging/image_tensors.h"

#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

namespace cohort::train::detail {
namespace {

// Returns the tensor with its dimensions in the order of `wanted`.
at::Tensor in_order(const at::Tensor& image, std::string dataformats, const std::string& wanted) {
  std::string given = dataformats;
  for (char& letter : dataformats) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  std::string sorted = dataformats, sorted_wanted = wanted;
  std::sort(sorted.begin(), sorted.end());
  std::sort(sorted_wanted.begin(), sorted_wanted.end());
  TORCH_CHECK_VALUE(sorted == sorted_wanted, "[cohort] SummaryWriter: dataformats \"", given,
                    "\" is not an order of the letters ", wanted);
  TORCH_CHECK_VALUE(image.dim() == static_cast<int64_t>(wanted.size()), "[cohort] SummaryWriter: dataformats \"", given,
                    "\" is of ", wanted.size(), " dimensions, but the tensor has the shape ", image.sizes());
  std::vector<int64_t> order;
  for (const char letter : wanted) order.push_back(static_cast<int64_t>(dataformats.find(letter)));
  return image.permute(order);
}

at::Tensor as_bytes(const at::Tensor& image) {
  TORCH_CHECK_VALUE(image.numel() > 0, "[cohort] SummaryWriter: an image of the shape ", image.sizes(),
                    " has no pixels");
  const at::Tensor on_host = image.detach().to(at::kCPU);
  if (on_host.scalar_type() == at::kByte) return on_host;
  return on_host.to(at::kFloat).mul(255).clamp(0, 255).to(at::kByte);
}

void check_channels(int64_t channels, const at::Tensor& image, bool is_alpha_allowed) {
  TORCH_CHECK_VALUE(channels == 1 || channels == 3 || (is_alpha_allowed && channels == 4),
                    "[cohort] SummaryWriter: images have ", is_alpha_allowed ? "1, 3 or 4" : "1 or 3",
                    " channels, but a tensor of the shape ", image.sizes(), " has ", channels);
}

}  // namespace

at::Tensor picture_of(const at::Tensor& image, const std::string& dataformats) {
  const bool is_plane = dataformats.size() == 2;
  at::Tensor ordered = is_plane ? in_order(image, dataformats, "HW").unsqueeze(2) : in_order(image, dataformats, "HWC");
  check_channels(ordered.size(2), image, true);
  if (ordered.size(2) == 1) ordered = ordered.expand({-1, -1, 3});
  return as_bytes(ordered).contiguous();
}

at::Tensor picture_of_all(const at::Tensor& images, const std::string& dataformats) {
  constexpr int64_t kMostColumns = 8;
  const at::Tensor ordered = in_order(images, dataformats, "NHWC");
  check_channels(ordered.size(3), images, false);
  const at::Tensor bytes = as_bytes(ordered);
  const int64_t count = bytes.size(0), height = bytes.size(1), width = bytes.size(2);
  const int64_t columns = std::min(count, kMostColumns), rows = (count + columns - 1) / columns;
  at::Tensor picture = at::zeros({rows * height, columns * width, 3}, bytes.options());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t top = i / columns * height, left = i % columns * width;
    picture.narrow(0, top, height).narrow(1, left, width).copy_(bytes[i].expand({height, width, 3}));
  }
  return picture;
}

}  // namespace cohort::train::detail
