// cifar_read ROOT SET PART OUT: reads a set by CIFAR10 (SET 10), CIFAR100 (100) or its coarse labels (20), PART train or test.
// Prints the names of classes, one a line; OUT gets a record for each image, in order: 8 bytes of label, 3072 of pixels. Batches
// of get_batch are compared with get. After an error, its text is on stderr and the exit code is 1.
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>

#include <fstream>
#include <iostream>
#include <string>

#include "cohort/extras/data/datasets/cifar.h"

namespace {

using namespace cohort::data;

void write_set(const CifarImageDataset& set, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < set.size(); ++i) order.push_back((i * 7) % set.size());
  const auto batch = set.get_batch(order);
  for (int64_t i = 0; i < set.size(); ++i) {
    const auto [image, label] = set.get(i);
    const int64_t number = label.item<int64_t>();
    out.write(reinterpret_cast<const char*>(&number), sizeof number);
    out.write(static_cast<const char*>(image.const_data_ptr()), static_cast<std::streamsize>(image.nbytes()));
    const auto [same_image, same_label] = set.get(order[static_cast<size_t>(i)]);
    TORCH_CHECK(at::equal(batch.first[i], same_image) && batch.second[i].item<int64_t>() == same_label.item<int64_t>(),
                "place ", i, " of a batch is not image ", order[static_cast<size_t>(i)]);
  }
  for (const auto& name : set.classes()) std::cout << name << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string root = argv[1], set = argv[2];
  const bool train = argv[3] == std::string("train");
  try {
    if (set == "10") {
      write_set(CIFAR10(root, {.train = train}), argv[4]);
    } else {
      write_set(CIFAR100(root, {.train = train, .coarse_labels = set == "20"}), argv[4]);
    }
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
    return 1;
  }
  return 0;
}
