// Synthetic CIFAR-10 and CIFAR-100: colored shapes, in binary records or pickled batches.
#include <fmt/format.h>

#include "cohort/base/text/text.h"
#include "cohort/extras/files/synthetic/drawing.h"
#include "cohort/extras/files/synthetic/formats.h"
#include "cohort/extras/files/synthetic/making.h"

namespace cohort::files {
namespace {

constexpr int kCifarSide = 32;
constexpr int kClassesOfAGroup = 5;  // in CIFAR-100: five fine classes per coarse class

struct ShapeBatch {
  CifarImages images;
  std::vector<int64_t> coarse_labels;  // only in CIFAR-100
};

base::Result<ShapeBatch> draw_batch(const Making& making, SetPart part, int64_t begin, int64_t end, int num_classes) {
  ShapeBatch batch;
  for (int64_t i = begin; i < end; ++i) {
    auto random = making.sample(part, i);
    if (!random) return Making::stopped();
    const int label = random->below(num_classes);
    const auto pixels = draw_shape(label, num_classes, kCifarSide, *random);
    batch.images.pixels.insert(batch.images.pixels.end(), pixels.begin(), pixels.end());
    batch.images.labels.push_back(label);
    if (num_classes == 100) batch.coarse_labels.push_back(label / kClassesOfAGroup);
  }
  return batch;
}

base::Result<void> put_batch(const Making& making, const std::string& name, const base::Result<ShapeBatch>& batch) {
  if (!batch) return batch.error();
  if (making.options().pickled) return making.put(name, cifar_pickle_bytes(batch->images, batch->coarse_labels));
  return making.put(name + ".bin", cifar_record_bytes(batch->images, batch->coarse_labels));
}

std::vector<std::string> coarse_names() {
  std::vector<std::string> names;
  for (int label = 0; label < 100 / kClassesOfAGroup; ++label) names.push_back(fmt::format("color_{}", label));
  return names;
}

// `meta`: the file in Python's version. In the binary version each list is a file.
base::Result<void> put_names(const Making& making, const std::string& meta, const std::vector<NameList>& lists) {
  if (making.options().pickled) return making.put(meta, name_lists_pickle_bytes(lists));
  for (const auto& [key, names] : lists) {
    const std::string file = key == "label_names" ? "batches.meta.txt" : key + ".txt";
    if (auto put = making.put(file, base::join(names, "\n") + "\n"); !put) return put;
  }
  return {};
}

}  // namespace

base::Result<void> make_cifar10(const Making& making) {
  const int64_t count = making.num_samples(SetPart::kTrain);
  for (int64_t i = 0; i < 5; ++i) {
    const auto batch = draw_batch(making, SetPart::kTrain, count * i / 5, count * (i + 1) / 5, 10);
    if (auto put = put_batch(making, fmt::format("data_batch_{}", i + 1), batch); !put) return put;
  }
  const auto test = draw_batch(making, SetPart::kTest, 0, making.num_samples(SetPart::kTest), 10);
  if (auto put = put_batch(making, "test_batch", test); !put) return put;
  return put_names(making, "batches.meta", {{"label_names", shape_class_names(10)}});
}

base::Result<void> make_cifar100(const Making& making) {
  const auto train = draw_batch(making, SetPart::kTrain, 0, making.num_samples(SetPart::kTrain), 100);
  if (auto put = put_batch(making, "train", train); !put) return put;
  const auto test = draw_batch(making, SetPart::kTest, 0, making.num_samples(SetPart::kTest), 100);
  if (auto put = put_batch(making, "test", test); !put) return put;
  return put_names(making, "meta",
                   {{"fine_label_names", shape_class_names(100)}, {"coarse_label_names", coarse_names()}});
}

}  // namespace cohort::files
