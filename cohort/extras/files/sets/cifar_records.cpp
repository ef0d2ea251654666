#include "cohort/extras/files/sets/cifar_records.h"

#include <fmt/format.h>

#include "cohort/base/text/text.h"

namespace cohort::files {

base::Result<void> read_cifar_records(const InputFile& file, const CifarLayout& layout, CifarImages& images) {
  const auto record_size = static_cast<size_t>(layout.num_label_bytes + kCifarImageBytes);
  const size_t num_records = file.size() / record_size;
  if (const size_t rest = file.size() % record_size; rest != 0 || num_records == 0) {
    return file.error_at(num_records * record_size, fmt::format("a record of {} bytes", record_size),
                         rest == 0 ? "an empty file" : fmt::format("only {}", rest));
  }
  images.pixels.reserve(images.pixels.size() + num_records * kCifarImageBytes);
  images.labels.reserve(images.labels.size() + num_records);
  const auto* record = reinterpret_cast<const uint8_t*>(file.bytes().data());
  for (size_t i = 0; i < num_records; ++i, record += record_size) {
    const int label = record[layout.label_byte];
    if (label >= layout.num_classes) {
      return file.error_at(i * record_size + static_cast<size_t>(layout.label_byte),
                           fmt::format("a label below {}", layout.num_classes), std::to_string(label));
    }
    images.labels.push_back(label);
    const uint8_t* const pixels = record + layout.num_label_bytes;
    images.pixels.insert(images.pixels.end(), pixels, pixels + kCifarImageBytes);
  }
  return {};
}

base::Result<std::vector<std::string>> read_class_names(const InputFile& file, int num_classes) {
  std::vector<std::string> names;
  for (const std::string& line : base::split(file.bytes(), '\n')) {
    std::string name = base::trim(line);
    if (!name.empty()) names.push_back(std::move(name));
    if (names.size() > static_cast<size_t>(num_classes)) break;  // a file of nothing but lines
  }
  if (names.size() == static_cast<size_t>(num_classes)) return names;
  return file.error_at(file.size(), fmt::format("{} names of classes, one a line", num_classes),
                       fmt::format("{}{}", names.size() > static_cast<size_t>(num_classes) ? "more than " : "",
                                   std::min(names.size(), static_cast<size_t>(num_classes))));
}

}  // namespace cohort::files
