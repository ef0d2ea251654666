// JPEG files, decoded in every mode, layout and size. The first byte chooses them.
#include <cstdint>
#include <vector>

#include "cohort/extras/files/images/image_reader.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort::files;
  if (size == 0) return 0;
  const InputFile file = InputFile::view("input", cohort::fuzz::text_of(data + 1, size - 1));
  constexpr uint64_t kMaxPixels = 1 << 18;
  ImageOptions options{.mode = static_cast<ImageMode>(data[0] % 5),
                       .min_side = data[0] & 64U ? 16U : 0U,
                       .apply_exif_orientation = (data[0] & 128) != 0,
                       .max_pixels = kMaxPixels};
  auto reader = ImageReader::open(file, options);
  if (!reader) return 0;
  const ImageShape shape = reader->shape();
  FUZZ_CHECK(shape.channels >= 1 && shape.channels <= 4 && shape.num_bytes() > 0);
  FUZZ_CHECK(shape.num_bytes() <= kMaxPixels * 4);
  std::vector<uint8_t> pixels(shape.num_bytes());
  if (!reader->read(pixels.data(), data[0] & 32 ? ImageLayout::kInterleaved : ImageLayout::kPlanes)) return 0;
  return 0;
}
