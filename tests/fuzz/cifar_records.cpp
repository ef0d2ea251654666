// CIFAR's binary files: a first byte that says how many bytes of labels a record has, then records; and lists of names.
#include "cohort/extras/files/sets/cifar_records.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  if (size == 0) return 0;
  const auto file = files::InputFile::view("batch.bin", fuzz::text_of(data + 1, size - 1));
  const files::CifarLayout layout{.num_label_bytes = 1 + data[0] % 2, .label_byte = data[0] % 2, .num_classes = 10};
  files::CifarImages images;
  if (files::read_cifar_records(file, layout, images)) {
    FUZZ_CHECK(images.pixels.size() == images.labels.size() * files::kCifarImageBytes);
    FUZZ_CHECK(images.pixels.size() + images.labels.size() * static_cast<size_t>(layout.num_label_bytes) ==
               file.size());
    for (const int64_t label : images.labels) FUZZ_CHECK(label >= 0 && label < layout.num_classes);
  }
  const auto names = files::read_class_names(file, 3);
  if (names) FUZZ_CHECK(names->size() == 3);
  return 0;
}
