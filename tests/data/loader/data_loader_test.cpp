#include "cohort/data/loader/data_loader.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "cohort/data/datasets/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

using test::error_text;
using testing::ElementsAre;

// Example i is the number i.
struct Numbers {
  int64_t count = 10;
  int64_t get(int64_t index) const { return index; }
  int64_t size() const { return count; }
};

// Reading goes through a function, so that a test can fail, wait or count.
struct Scripted {
  std::function<int64_t(int64_t)> read;
  int64_t count = 10;
  int64_t get(int64_t index) const { return read(index); }
  int64_t size() const { return count; }
};

template <typename Loader>
std::vector<std::vector<int64_t>> values(Loader&& loader) {
  std::vector<std::vector<int64_t>> result;
  for (auto& batch : loader) {
    const int64_t* data = batch.template const_data_ptr<int64_t>();
    result.emplace_back(data, data + batch.numel());
  }
  return result;
}

class Workers : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(DataLoader, Workers, testing::Values(0, 1, 2, 3, 7));

TEST_P(Workers, KeepTheOrderOverSeveralEpochs) {
  DataLoader loader(Numbers{}, {.batch_size = 4, .num_workers = GetParam()});
  EXPECT_EQ(loader.size(), 3);
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_THAT(values(loader), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7), ElementsAre(8, 9)));
  }
}

TEST_P(Workers, DropLastAndEmptyDatasets) {
  DataLoader loader(Numbers{}, {.batch_size = 4, .num_workers = GetParam(), .drop_last = true});
  EXPECT_THAT(values(loader), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  DataLoader empty(Numbers{0}, {.batch_size = 4, .num_workers = GetParam()});
  EXPECT_THAT(values(empty), ElementsAre());
}

TEST_P(Workers, ShufflingDoesNotDependOnTheirNumber) {
  DataLoader reference(Numbers{}, {.shuffle = true, .generator = make_generator(4)});
  DataLoader loader(Numbers{}, {.shuffle = true, .num_workers = GetParam(), .generator = make_generator(4)});
  const auto first = values(reference);
  EXPECT_EQ(values(loader), first);
  const auto second = values(reference);
  EXPECT_EQ(values(loader), second);
  EXPECT_NE(first, second);
}

TEST_P(Workers, LeavingAnEpochEarlyEndsThem) {
  std::atomic<int> num_read{0};
  DataLoader loader(Scripted{[&](int64_t index) { return ++num_read, index; }, 100000}, {.num_workers = GetParam()});
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (auto& batch : loader) {
      EXPECT_EQ(batch.template item<int64_t>(), 0);
      break;
    }
  }
  // Each worker reads two batches ahead, so most of the data was never touched.
  EXPECT_LE(num_read.load(), 20 * (1 + 2 * std::max(GetParam(), 1)));
}

TEST_P(Workers, StartInTheMiddleOfAnEpoch) {
  DataLoader loader(Numbers{}, {.batch_size = 4, .num_workers = GetParam()});
  auto epoch = loader.start(2);
  EXPECT_TRUE(epoch.next()->equal(at::tensor({8, 9}, at::kLong)));
  EXPECT_FALSE(epoch.next().has_value());
  EXPECT_FALSE(epoch.next().has_value());
}

TEST(DataLoader, TwoEpochsAtATimeAreIndependent) {
  DataLoader loader(Numbers{}, {.num_workers = 2});
  auto a = loader.start();
  auto b = loader.start(5);
  EXPECT_EQ(a.next()->item<int64_t>(), 0);
  EXPECT_EQ(b.next()->item<int64_t>(), 5);
  EXPECT_EQ(a.next()->item<int64_t>(), 1);
}

TEST(DataLoader, OutOfOrderGivesEachBatchOnce) {
  DataLoader loader(Numbers{50}, {.num_workers = 3, .in_order = false});
  std::set<int64_t> seen;
  for (auto& batch : loader) EXPECT_TRUE(seen.insert(batch.item<int64_t>()).second);
  EXPECT_EQ(seen.size(), 50u);
}

TEST(DataLoader, OutOfOrderDoesNotWaitForASlowBatch) {
  std::latch slow(1);
  DataLoader loader(Scripted{[&](int64_t index) {
                      if (index == 0) slow.wait();
                      return index;
                    }},
                    {.num_workers = 2, .in_order = false});
  auto epoch = loader.start();
  const int64_t first = epoch.next()->item<int64_t>();
  slow.count_down();
  EXPECT_NE(first, 0);
}

TEST(DataLoader, PrefetchIsBounded) {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_read = 0;
  DataLoader loader(Scripted{[&](int64_t index) {
                               std::lock_guard lock(mutex);
                               ++num_read;
                               changed.notify_all();
                               return index;
                             },
                             100},
                    {.num_workers = 2, .prefetch_factor = 3});
  auto epoch = loader.start();
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return num_read == 6; });
  lock.unlock();
  for (int64_t taken = 0; taken < 100; ++taken) {
    EXPECT_EQ(epoch.next()->item<int64_t>(), taken);
    lock.lock();
    EXPECT_LE(num_read, taken + 1 + 6);
    lock.unlock();
  }
}

TEST(DataLoader, WorkersKnowWhoTheyAre) {
  EXPECT_EQ(worker_info(), nullptr);
  std::vector<int64_t> seeds(8);
  DataLoader loader(Scripted{[&](int64_t index) {
                               const WorkerInfo* info = worker_info();
                               if (!info || info->num_workers != 2 || info->id != index % 2) return int64_t{-1};
                               seeds[index] = info->seed;
                               return index;
                             },
                             8},
                    {.num_workers = 2, .generator = make_generator(1)});
  for (auto& batch : loader) EXPECT_GE(batch.item<int64_t>(), 0);
  EXPECT_EQ(seeds[0] + 1, seeds[1]);
  EXPECT_EQ(seeds[0], seeds[6]);
  const int64_t seed_of_first_epoch = seeds[0];
  for (auto& batch : loader) EXPECT_GE(batch.item<int64_t>(), 0);
  EXPECT_NE(seeds[0], seed_of_first_epoch);
}

TEST(DataLoader, WorkersComputeWithOneThreadAndTheCallerAsBefore) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  DataLoader loader(Scripted{[](int64_t) -> int64_t { return at::get_num_threads(); }, 2}, {.num_workers = 1});
  EXPECT_THAT(values(loader), ElementsAre(ElementsAre(1), ElementsAre(1)));
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(before);
}

TEST(DataLoader, WorkerErrorNamesSampleAndWorkerMessage) {
  const auto fail = [](int64_t index) -> int64_t {
    if (index == 7) throw std::runtime_error("the image is broken");
    return index;
  };
  DataLoader loader(Scripted{fail}, {.batch_size = 2, .num_workers = 2});
  auto epoch = loader.start();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(epoch.next()->size(0), 2);
  EXPECT_EQ(error_text<c10::Error>([&] { epoch.next(); }),
            "[cohort] DataLoader worker thread 1 of 2 could not read sample 7\n  caused by: the image is broken");
  EXPECT_TRUE(epoch.next()->equal(at::tensor({8, 9}, at::kLong))) << "the epoch goes on after an error";
  EXPECT_FALSE(epoch.next().has_value());
}

TEST(DataLoader, WorkerErrorKeepsItsType) {
  DataLoader values(Scripted{[](int64_t) -> int64_t { TORCH_CHECK_VALUE(false, "no such label"); }},
                    {.num_workers = 1});
  EXPECT_EQ(error_text<c10::ValueError>([&] { values.begin(); }),
            "[cohort] DataLoader worker thread 0 of 1 could not read sample 0\n  caused by: no such label");
  DataLoader ranges(Scripted{[](int64_t) -> int64_t { throw std::out_of_range("row 5"); }}, {.num_workers = 1});
  EXPECT_THROW(ranges.begin(), c10::IndexError);
  DataLoader odd(Scripted{[](int64_t) -> int64_t { throw 3; }}, {.num_workers = 1});
  EXPECT_EQ(error_text<c10::Error>([&] { odd.begin(); }),
            "[cohort] DataLoader worker thread 0 of 1 could not read sample 0\n"
            "  caused by: an exception that is not a std::exception");
}

TEST(DataLoader, CollateErrorNamesSamplesMessage) {
  const auto fail = [](const std::vector<int64_t>&) -> at::Tensor { throw std::runtime_error("shapes differ"); };
  DataLoader loader(Numbers{30}, {.batch_size = 10, .num_workers = 1}, fail);
  EXPECT_EQ(error_text<c10::Error>([&] { loader.begin(); }),
            "[cohort] DataLoader worker thread 0 of 1 could not collate the 10 samples of a batch\n"
            "  samples: 0 1 2 3 4 5 6 7 ...\n  caused by: shapes differ");
}

// The second of three batches has no samples.
struct WithAnEmptyBatch : BatchSampler {
  std::vector<std::vector<int64_t>> batches() override { return {{4, 1}, {}, {7}}; }
  int64_t size() const override { return 3; }
};

constexpr auto kNoSamples =
    "list index out of range\n  hint: leave batches without samples out of the batch sampler, or give the DataLoader a "
    "collate function of your own";

template <typename Loader>
std::string text_of_second(const Loader& loader) {
  auto epoch = loader.start();
  EXPECT_TRUE(epoch.next());
  return error_text<c10::IndexError>([&] { epoch.next(); });
}

TEST(DataLoader, AnEmptyBatchMessage) {
  const auto sampler = std::make_shared<WithAnEmptyBatch>();
  EXPECT_EQ(text_of_second(DataLoader(Numbers{}, {.batch_sampler = sampler})), kNoSamples);
  // Those that read whole batches, too.
  EXPECT_EQ(text_of_second(DataLoader(TensorDataset(at::arange(8)), {.batch_sampler = sampler})), kNoSamples);
  const DataLoader loader(Numbers{}, {.batch_sampler = sampler, .num_workers = 1});
  auto epoch = loader.start();
  EXPECT_TRUE(epoch.next()->equal(at::tensor({4, 1}, at::kLong)));
  EXPECT_EQ(error_text<c10::IndexError>([&] { epoch.next(); }),
            std::string("[cohort] DataLoader worker thread 0 of 1 could not collate a batch without samples\n"
                        "  caused by: ") +
                kNoSamples);
  EXPECT_TRUE(epoch.next()->equal(at::tensor({7}, at::kLong)));
}

TEST(DataLoader, AnEmptyBatchIsTheCollateFunctionsOwn) {
  const auto count = [](const std::vector<int64_t>& numbers) { return static_cast<int64_t>(numbers.size()); };
  const DataLoader loader(Numbers{}, {.batch_sampler = std::make_shared<WithAnEmptyBatch>()}, count);
  std::vector<int64_t> counts;
  for (const auto& batch : loader) counts.push_back(batch);
  EXPECT_THAT(counts, ElementsAre(2, 0, 1));
}

TEST(DataLoader, NoDatasetMessage) {
  EXPECT_EQ(error_text<c10::ValueError>([] { DataLoader loader(std::shared_ptr<Numbers>{}); }),
            "[cohort] DataLoader needs a dataset, but got a null pointer");
}

TEST(DataLoader, ToBeginFurtherThanCanBeCountedMessage) {
  const auto make = [] { return DataLoader(Numbers{}, {.batch_sampler = std::make_shared<WithAnEmptyBatch>()}); };
  const auto first = make();
  auto epoch = first.start();
  epoch.next();
  auto second = make();
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(error_text<c10::ValueError>([&] { second.start(INT64_MAX); }),
            "[cohort] first_batch should be in the interval [0, 3], but got first_batch=9223372036854775807");
}

TEST(DataLoader, NumbersWithoutALimitAreNoLimits) {
  const DataLoader loader(Numbers{5}, {.batch_size = INT64_MAX,
                                       .num_workers = 2,
                                       .prefetch_factor = INT_MAX,
                                       .timeout = std::chrono::milliseconds::max()});
  EXPECT_EQ(loader.size(), 1);
  EXPECT_THAT(values(loader), ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
}

TEST(DataLoader, WithoutWorkersErrorsPassUnchanged) {
  DataLoader loader(Scripted{[](int64_t) -> int64_t { throw std::domain_error("mine"); }});
  EXPECT_THROW(loader.begin(), std::domain_error);
}

TEST(DataLoader, WorkerInitRunsInEachWorkerAndItsErrorComesOut) {
  std::atomic<int> mask{0};
  DataLoader loader(Numbers{}, {.num_workers = 2, .worker_init_fn = [&](int worker) { mask |= 1 << worker; }});
  EXPECT_EQ(values(loader).size(), 10u);
  EXPECT_EQ(mask.load(), 3);
  DataLoader broken(Numbers{}, {.num_workers = 1, .worker_init_fn = [](int) { throw std::runtime_error("no disk"); }});
  EXPECT_EQ(error_text<c10::Error>([&] { broken.begin(); }),
            "[cohort] DataLoader worker thread 0 of 1 failed in worker_init_fn\n  caused by: no disk");
}

TEST(DataLoader, TimeoutMessage) {
  std::latch release(1);
  DataLoader loader(Scripted{[&](int64_t index) { return release.wait(), index; }},
                    {.num_workers = 1, .timeout = std::chrono::milliseconds(50)});
  auto epoch = loader.start();
  EXPECT_EQ(error_text<c10::Error>([&] { epoch.next(); }), "DataLoader timed out after 0.05 seconds");
  release.count_down();
}

TEST(DataLoader, SamplerGivesTheOrder) {
  DataLoader loader(
      Numbers{},
      {.batch_size = 2, .sampler = std::make_shared<SubsetRandomSampler>(std::vector<int64_t>{6}, make_generator(0))});
  EXPECT_THAT(values(loader), ElementsAre(ElementsAre(6)));
}

TEST(DataLoader, CustomCollateAndSharedDataset) {
  auto dataset = std::make_shared<Numbers>();
  const auto sum = [](const std::vector<int64_t>& numbers) {
    int64_t total = 0;
    for (const int64_t number : numbers) total += number;
    return total;
  };
  DataLoader loader(dataset, {.batch_size = 5, .num_workers = 1}, sum);
  std::vector<int64_t> sums;
  for (auto& batch : loader) sums.push_back(batch);
  EXPECT_THAT(sums, ElementsAre(10, 35));
}

TEST(DataLoader, ContradictingOptionsMessages) {
  const auto text = [](DataLoaderOptions options) {
    return error_text<c10::ValueError>([&] { DataLoader(Numbers{}, options); });
  };
  const auto order = std::make_shared<SequentialSampler>(10);
  const auto batches = std::make_shared<BatchSampler>(order, 2);
  EXPECT_EQ(text({.num_workers = -1}),
            "num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.");
  EXPECT_EQ(text({.timeout = std::chrono::seconds(-1)}), "timeout option should be non-negative");
  EXPECT_EQ(text({.prefetch_factor = 2}),
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
            "multiprocessing, otherwise set prefetch_factor to None.");
  EXPECT_EQ(text({.num_workers = 1, .prefetch_factor = -1}), "prefetch_factor option should be non-negative");
  EXPECT_EQ(text({.num_workers = 1, .prefetch_factor = 0}),
            "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter");
  EXPECT_EQ(text({.shuffle = true, .sampler = order}), "sampler option is mutually exclusive with shuffle");
  EXPECT_EQ(text({.batch_size = 2, .batch_sampler = batches}),
            "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last");
  EXPECT_EQ(text({.batch_size = 0}), "batch_size should be a positive integer value, but got batch_size=0");
}

TEST(TensorDataset, GivesRowsAndWholeBatches) {
  const at::Tensor inputs = at::arange(12).view({6, 2});
  const at::Tensor targets = at::arange(6);
  DataLoader loader(TensorDataset(inputs, targets), {.batch_size = 4, .num_workers = 1});
  auto epoch = loader.start();
  const auto batch = epoch.next();
  EXPECT_TRUE(std::get<0>(*batch).equal(inputs.narrow(0, 0, 4)));
  EXPECT_TRUE(std::get<1>(*batch).equal(targets.narrow(0, 0, 4)));
  const auto [row, target] = TensorDataset(inputs, targets).get(5);
  EXPECT_TRUE(row.equal(inputs[5]));
  EXPECT_EQ(target.item<int64_t>(), 5);
  for (auto& [x, y] : loader) EXPECT_EQ(x.size(0), y.size(0));
}

TEST(TensorDataset, DifferentRowsMessage) {
  EXPECT_EQ(error_text<c10::ValueError>([] { TensorDataset(at::arange(3), at::arange(4)); }),
            "[cohort] Size mismatch between tensors: tensor 0 has 3 rows, tensor 1 has 4");
}

}  // namespace
}  // namespace cohort::data
