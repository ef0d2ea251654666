// A DataLoader's state in a .pt file: a run that was stopped in the middle of an epoch goes on with the batch after it.
#include <ATen/core/Dict.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/checkpoint/state/python_state.h"
#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/data/error_text.h"

namespace cohort::checkpoint {
namespace {

using SampleLoader = data::DataLoader<data::TensorDataset<1>>;
using SeenBatches = std::vector<std::vector<int64_t>>;

// 23 samples, so that the last batch is short, in an order that no other loader has by chance.
SampleLoader sample_loader(int num_workers) {
  return SampleLoader(data::TensorDataset(at::arange(23)),
                      {.batch_size = 4, .shuffle = true, .num_workers = num_workers});
}

SeenBatches take_batches(data::Epoch<SampleLoader::Batch>& epoch, int count = 100) {
  SeenBatches seen;
  while (static_cast<int>(seen.size()) < count) {
    const auto batch = epoch.next();
    if (!batch) break;
    const auto& [rows] = *batch;
    seen.emplace_back(rows.const_data_ptr<int64_t>(), rows.const_data_ptr<int64_t>() + rows.numel());
  }
  return seen;
}

void save_run(const SampleLoader& loader, const std::string& path) {
  c10::impl::GenericDict run(c10::StringType::get(), c10::AnyType::get());
  run.insert("loader", python_dict(loader.state_dict()));
  run.insert("step", 7);
  save(run, path);
}

TEST(LoaderStateInFile, GoesOnWithExactlyTheNextBatch) {
  const test::TemporaryFolder folder;
  const std::string path = folder.file("run.pt");
  for (const int num_workers : {0, 2}) {
    for (int num_taken = 1; num_taken <= 6; ++num_taken) {
      const SampleLoader loader = sample_loader(num_workers);
      auto epoch = loader.start();
      const auto taken = take_batches(epoch, num_taken);
      save_run(loader, path);
      const auto rest = take_batches(epoch);
      ASSERT_EQ(taken.size() + rest.size(), 6u);
      for (const bool mmap : {false, true}) {
        SampleLoader resumed = sample_loader(num_workers);
        resumed.load_state_dict(loader_state_in(load(path, {.mmap = mmap}).toGenericDict().at("loader")));
        auto again = resumed.start();
        EXPECT_EQ(take_batches(again), rest) << "after " << num_taken << " batches";
      }
    }
  }
}

TEST(LoaderStateInFile, WhatIsNoStateMessage) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("num_taken", 3);
  EXPECT_EQ(test::error_text<c10::ValueError>([&] { loader_state_in(dict); }),
            "[cohort] \"num_taken\" of the state dict is 3, not a tensor\n"
            "  hint: files often hold a model's state under \"model\" or \"state_dict\"");
  EXPECT_EQ(test::error_text<c10::ValueError>([&] { loader_state_in(c10::IValue(3)); }),
            "[cohort] a state dict is a dict, not 3");
}

}  // namespace
}  // namespace cohort::checkpoint
