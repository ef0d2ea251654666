// One option of the DataLoader after the other; what they do to the order of batches is in data_loader_test.cpp.
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/group/process_group.h"
#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "tests/data/error_text.h"
#include "tests/support/rank_processes.h"
#include "tests/support/require.h"

namespace cohort::data {
namespace {

using test::error_text;
using testing::ElementsAre;

struct Readable {
  std::function<int64_t(int64_t)> read = [](int64_t index) { return index; };
  int64_t count = 10;
  int64_t get(int64_t index) const { return read(index); }
  int64_t size() const { return count; }
};

std::vector<std::vector<int64_t>> batches_in(const DataLoader<Readable>& loader) {
  std::vector<std::vector<int64_t>> result;
  for (auto& batch : loader) {
    result.emplace_back(batch.const_data_ptr<int64_t>(), batch.const_data_ptr<int64_t>() + batch.numel());
  }
  return result;
}

// Which threads read in each epoch, and how often worker_init_fn was called.
struct ThreadsOfEpochs {
  std::vector<std::set<std::thread::id>> epochs;
  std::set<int64_t> seeds;
  int num_inits = 0;
};

ThreadsOfEpochs threads_of(bool persistent, int num_epochs) {
  std::mutex mutex;
  ThreadsOfEpochs result;
  std::set<std::thread::id> now;
  const auto read = [&](int64_t index) {
    const std::lock_guard lock(mutex);
    now.insert(std::this_thread::get_id());
    result.seeds.insert(worker_info()->seed);
    return index;
  };
  const auto init = [&](int) {
    const std::lock_guard lock(mutex);
    ++result.num_inits;
  };
  const DataLoader loader(Readable{read}, {.num_workers = 2, .worker_init_fn = init, .persistent_workers = persistent});
  for (int epoch = 0; epoch < num_epochs; ++epoch) {
    EXPECT_EQ(batches_in(loader).size(), 10u);
    result.epochs.push_back(std::exchange(now, {}));
  }
  return result;
}

TEST(PersistentWorkers, AreTheSameThreadsInEachEpoch) {
  const auto kept = threads_of(true, 3);
  EXPECT_EQ(kept.epochs[0].size(), 2u);
  EXPECT_EQ(kept.epochs[1], kept.epochs[0]);
  EXPECT_EQ(kept.epochs[2], kept.epochs[0]);
  EXPECT_EQ(kept.num_inits, 2);
  EXPECT_EQ(kept.seeds.size(), 2u);
  const auto fresh = threads_of(false, 3);
  EXPECT_EQ(fresh.num_inits, 6);
  EXPECT_EQ(fresh.seeds.size(), 6u);
}

TEST(PersistentWorkers, ServeTheNextEpochAfterOneThatWasLeft) {
  const DataLoader loader(Readable{}, {.batch_size = 3, .num_workers = 2, .persistent_workers = true});
  for (int epoch = 0; epoch < 20; ++epoch) {
    auto left = loader.start();
    EXPECT_EQ(left.next()->size(0), 3);
  }
  EXPECT_EQ(batches_in(loader).size(), 4u);
}

TEST(PersistentWorkers, AnEpochBesideAnotherHasThreadsOfItsOwn) {
  const DataLoader loader(Readable{}, {.num_workers = 2, .persistent_workers = true});
  auto first = loader.start();
  EXPECT_EQ(first.next()->item<int64_t>(), 0);
  EXPECT_EQ(batches_in(loader).size(), 10u);
  EXPECT_EQ(first.next()->item<int64_t>(), 1);
}

TEST(PersistentWorkers, AnEpochOutlivesItsLoader) {
  auto loader = std::make_unique<DataLoader<Readable>>(Readable{},
                                                       DataLoaderOptions{.num_workers = 1, .persistent_workers = true});
  auto epoch = loader->start();
  loader.reset();
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(epoch.next()->item<int64_t>(), i);
  EXPECT_FALSE(epoch.next());
}

TEST(PersistentWorkers, WithoutWorkersMessage) {
  EXPECT_EQ(error_text<c10::ValueError>([] { DataLoader(Readable{}, {.persistent_workers = true}); }),
            "persistent_workers option needs num_workers > 0");
}

// Copies share what the loader knows of its epoch.
TEST(DataLoaderCopies, GoOnWithOneEpoch) {
  DataLoader loader(Readable{}, {.num_workers = 1});
  const auto copy = loader;  // NOLINT(performance-unnecessary-copy-initialization): it is what this is about
  auto epoch = loader.start();
  epoch.next();
  EXPECT_EQ(copy.stats().num_batches, 1);
  const auto state = copy.state_dict();
  EXPECT_EQ(state.at("num_samples_given").item<int64_t>(), 1);
  EXPECT_EQ(batches_in(copy).size(), 10u);
  EXPECT_EQ(epoch.next()->item<int64_t>(), 1);
}

TEST(DataLoaderWorkers, KnowTheirDatasetAndHaveAGenerator) {
  std::mutex mutex;
  std::map<int64_t, at::Tensor> drawn;
  const Readable* seen = nullptr;
  const auto read = [&](int64_t index) {
    const auto* worker = worker_info();
    const std::lock_guard lock(mutex);
    seen = worker->dataset<const Readable>();
    if (worker->dataset<TensorDataset<1>>()) throw std::runtime_error("another type");
    if (!drawn.contains(worker->seed)) drawn[worker->seed] = at::rand({3}, worker->generator);
    return index;
  };
  const DataLoader loader(Readable{read}, {.num_workers = 2});
  EXPECT_EQ(batches_in(loader).size(), 10u);
  EXPECT_EQ(seen, &loader.dataset());
  ASSERT_EQ(drawn.size(), 2u);
  for (const auto& [seed, numbers] : drawn) EXPECT_TRUE(numbers.equal(at::rand({3}, make_generator(seed))));
}

// A worker that has failed to begin fails at each of its batches; where nobody knows how many there are, at the first.
TEST(WorkerInit, AnErrorComesForEachBatchAndThenTheEnd) {
  const auto init = [](int worker) {
    if (worker == 1) throw std::runtime_error("no disk");
  };
  const DataLoader loader(Readable{}, {.batch_size = 3, .num_workers = 2, .worker_init_fn = init});
  auto epoch = loader.start();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(epoch.next());
    EXPECT_EQ(error_text<c10::Error>([&] { epoch.next(); }),
              "[cohort] DataLoader worker thread 1 of 2 failed in worker_init_fn\n  caused by: no disk");
  }
  EXPECT_FALSE(epoch.next());
  struct Endless {
    struct Iterator {
      std::optional<int64_t> next() { return 1; }
    };
    Iterator iterate() const { return {}; }
  };
  const auto fail = [](int) { throw std::runtime_error("no disk"); };
  const DataLoader endless(Endless{}, {.num_workers = 1, .worker_init_fn = fail});
  auto never = endless.start();
  EXPECT_THROW(never.next(), c10::Error);
  EXPECT_FALSE(never.next());
}

struct CountedBatch {
  explicit CountedBatch(std::atomic<int>& count_) : count(count_) { ++count; }
  CountedBatch(const CountedBatch&) = delete;
  ~CountedBatch() { --count; }
  std::atomic<int>& count;
};

// Of those that are read ahead and the one in use.
TEST(Prefetch, BoundsHowManyBatchesThereAre) {
  std::atomic<int> num_batches{0};
  std::atomic<int> most{0};
  const auto count = [&](const std::vector<int64_t>&) {
    auto batch = std::make_shared<CountedBatch>(num_batches);
    int known = most;
    while (known < num_batches && !most.compare_exchange_weak(known, num_batches)) {
    }
    return batch;
  };
  const DataLoader loader(Readable{.count = 200}, {.num_workers = 3, .prefetch_factor = 2}, count);
  auto epoch = loader.start();
  while (num_batches < 6) std::this_thread::yield();
  for (auto batch = epoch.next(); batch; batch = epoch.next()) std::this_thread::yield();
  EXPECT_LE(most, 3 * 2 + 2) << "6 ahead, and while the next is taken the last two";
  EXPECT_EQ(num_batches, 0);
}

TEST(EarlyEnd, ReadersThatWaitForRoomEnd) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    const DataLoader loader(Readable{.count = 1000}, {.num_workers = 3, .prefetch_factor = 1});
    auto epoch = loader.start();
    if (repeat % 2 == 0) epoch.next();
    if (repeat % 3 == 0) std::this_thread::yield();
  }
}

TEST(SkipUnreadable, LeavesOutSamplesAndCountsThem) {
  const auto fail = [](int64_t index) -> int64_t {
    if (index % 4 == 3 || index == 4 || index == 5) throw std::runtime_error("torn");
    return index;
  };
  for (const int num_workers : {0, 2}) {
    const DataLoader loader(Readable{fail}, {.batch_size = 2, .num_workers = num_workers, .skip_unreadable = true});
    EXPECT_THAT(batches_in(loader), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(6), ElementsAre(8, 9)));
    EXPECT_EQ(loader.stats().num_skipped, 4);
    EXPECT_EQ(loader.stats().num_batches, 4);
  }
}

TEST(SkipUnreadable, AsksForEachSampleAloneWhereAWholeBatchCannotBeRead) {
  struct Batches {
    int64_t get(int64_t index) const { return index; }
    at::Tensor get_batch(const std::vector<int64_t>& indices) const {
      for (const int64_t index : indices) TORCH_CHECK(index != 2, "torn");
      return at::tensor(indices);
    }
    int64_t size() const { return 4; }
  };
  const DataLoader loader(Batches{}, {.batch_size = 4, .skip_unreadable = true});
  EXPECT_TRUE(loader.begin()->equal(at::tensor({0, 1, 3}, at::kLong)));
  EXPECT_EQ(loader.stats().num_skipped, 1);
  EXPECT_EQ(error_text<c10::Error>([] { DataLoader(Batches{}, {.batch_size = 4}).begin(); }), "torn");
}

TEST(SkipUnreadable, WarnsOfTheFirstMessage) {
  const auto fail = [](int64_t index) -> int64_t {
    throw std::runtime_error("sample is torn: " + std::to_string(index));
  };
  testing::internal::CaptureStderr();
  EXPECT_TRUE(batches_in(DataLoader(Readable{fail, 3}, {.skip_unreadable = true})).empty());
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "[cohort] warning: DataLoader leaves out samples that cannot be read, as skip_unreadable asks for; the first "
      "is sample 0: sample is torn: 0\n");
}

TEST(PinMemory, WithoutAnAcceleratorIsSaidAndNotDoneMessage) {
  testing::internal::CaptureStderr();
  const DataLoader loader(Readable{}, {.pin_memory = true});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[cohort] warning: 'pin_memory' argument is set as true but no accelerator is found, then device pinned "
            "memory won't be used.\n");
  EXPECT_EQ(loader.begin()->item<int64_t>(), 0);
}

TEST(DeviceOption, OfTheCpuChangesNothingAndOthersMustBeThereMessage) {
  EXPECT_EQ(batches_in(DataLoader(Readable{}, {.num_workers = 1, .device = c10::Device("cpu")})).size(), 10u);
  EXPECT_EQ(error_text<c10::ValueError>([] { DataLoader(Readable{}, {.device = c10::Device("cuda:1")}); }),
            "[cohort] device option should be the CPU or an accelerator of this process, but got device=cuda:1");
}

TEST(Unbatched, GivesSamplesAsTheyAre) {
  const DataLoader loader(Readable{}, {.num_workers = 2}, Unbatched());
  std::vector<int64_t> seen;
  for (const int64_t sample : loader) seen.push_back(sample);
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  const DataLoader rows(TensorDataset(at::arange(6).view({3, 2})), {}, Unbatched());
  EXPECT_TRUE(std::get<0>(*rows.begin()).equal(at::arange(2)));
  const auto wrong = "batch_size=None option disables auto-batching and is mutually exclusive with drop_last";
  EXPECT_EQ(error_text<c10::ValueError>([] { DataLoader(Readable{}, {.drop_last = true}, Unbatched()); }), wrong);
}

TEST(Stats, SayHowLongTheLoopHasWaited) {
  const auto slow = [](int64_t index) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return index;
  };
  const DataLoader loader(Readable{slow, 4});
  EXPECT_EQ(loader.stats().num_batches, 0);
  auto epoch = loader.start();
  for (int64_t i = 1; i <= 4; ++i) {
    epoch.next();
    const auto stats = loader.stats();
    EXPECT_EQ(stats.num_batches, i);
    EXPECT_GE(stats.last_wait, std::chrono::milliseconds(5));
    EXPECT_GE(stats.total_wait, i * std::chrono::milliseconds(5));
    EXPECT_GE(stats.total, stats.total_wait);
  }
}

TEST(Stats, AdviceOnWorkersMessage) {
  EpochStats stats{.num_batches = 100, .total_wait = std::chrono::seconds(6), .total = std::chrono::seconds(8)};
  EXPECT_EQ(
      detail::advice_on_workers(stats, 1, 4),
      "the loop over a DataLoader has waited 75 % of its time for data (6.0 s of 8.0 s): raise num_workers, which "
      "is 1; this process has 4 cores.");
  EXPECT_EQ(detail::advice_on_workers(stats, 4, 4),
            "the loop over a DataLoader has waited 75 % of its time for data (6.0 s of 8.0 s), though num_workers is 4 "
            "and this process has 4 cores: reading takes longer than training. Prepare the data beforehand, or choose "
            "cheaper transforms.");
  stats.total_wait = std::chrono::seconds(1);
  EXPECT_EQ(detail::advice_on_workers(stats, 1, 4), "");
  stats = {.num_batches = 19, .total_wait = std::chrono::seconds(8), .total = std::chrono::seconds(8)};
  EXPECT_EQ(detail::advice_on_workers(stats, 1, 4), "") << "too few to say";
}

TEST(GlobalBatchSize, WithoutRanksIsTheBatchSizeMessages) {
  const DataLoader loader(Readable{}, {.global_batch_size = 4});
  EXPECT_EQ(loader.size(), 3);
  EXPECT_EQ(error_text<c10::ValueError>([] { DataLoader(Readable{}, {.batch_size = 2, .global_batch_size = 4}); }),
            "[cohort] global_batch_size option is mutually exclusive with batch_size");
  EXPECT_EQ(error_text<c10::ValueError>([] { DataLoader(Readable{}, {.global_batch_size = 0}); }),
            "[cohort] global_batch_size=0 is too small for 1 ranks: each needs a sample");
}

COHORT_WORKER(loads_a_global_batch) {
  init_process_group("gloo");
  testing::internal::CaptureStderr();
  const DataLoader loader(Readable{}, {.global_batch_size = 7});
  const std::string warning =
      "[cohort] warning: a global batch of 7 samples does not divide evenly among 3 ranks: each takes 2, so that a "
      "step has "
      "6, 1 fewer.\n";
  REQUIRE_EQUAL(testing::internal::GetCapturedStderr(), get_rank() == 0 ? warning : "");
  REQUIRE(loader.begin()->size(0) == 2);
  barrier();  // who leaves while another one still connects makes that fail
  destroy_process_group();
}

TEST(GlobalBatchSize, IsDividedAmongRanksAndTheRemainderSaidMessage) {
  test::run_workers("loads_a_global_batch", {.world_size = 3}).expect_success();
}

}  // namespace
}  // namespace cohort::data
