// A folder of image files per class, as ImageFolder reads them: train/CLASS/00000.jpg, val/CLASS/...
#include <fmt/format.h>

#include "cohort/extras/files/images/image_writer.h"
#include "cohort/extras/files/synthetic/drawing.h"
#include "cohort/extras/files/synthetic/making.h"

namespace cohort::files {
namespace {

constexpr int kImageClasses = 10;
constexpr int kSmallestSide = 48;
constexpr int kLargestSide = 128;
constexpr int kOneInSoManyIsPng = 4;

base::Result<void> put_image(const Making& making, SetPart part, int64_t index) {
  auto random = making.sample(part, index);
  if (!random) return Making::stopped();
  const int label = random->below(kImageClasses);
  const int side = kSmallestSide + random->below(kLargestSide - kSmallestSide + 1);
  const bool is_png = random->below(kOneInSoManyIsPng) == 0;
  const auto pixels = draw_shape(label, kImageClasses, side, *random);
  const auto length = static_cast<uint32_t>(side);
  const ImageView image{.pixels = pixels.data(), .shape = {.height = length, .width = length, .channels = 3}};
  const auto file = is_png ? encode_png(image) : encode_jpeg(image, {.quality = 90});
  if (!file) return file.error();
  return making.put(
      fmt::format("{}/{}/{:05}.{}", part == SetPart::kTrain ? "train" : "val",
                  shape_class_names(kImageClasses)[static_cast<size_t>(label)], index, is_png ? "png" : "jpg"),
      *file);
}

}  // namespace

base::Result<void> make_images(const Making& making) {
  for (const SetPart part : {SetPart::kTrain, SetPart::kTest}) {
    for (int64_t i = 0; i < making.num_samples(part); ++i) {
      if (auto put = put_image(making, part, i); !put) return put;
    }
  }
  return {};
}

}  // namespace cohort::files
