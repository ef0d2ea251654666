#include "cohort/data/loader/iterable.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cohort/data/loader/data_loader.h"
#include "cohort/data/loader/worker_info.h"
#include "tests/data/error_text.h"

namespace cohort::data {
namespace {

using test::error_text;
using testing::ElementsAre;

struct CountUp {
  struct Iterator {
    int64_t place;
    int64_t end;
    std::optional<int64_t> next() { return place < end ? std::optional(place++) : std::nullopt; }
  };
  int64_t count = 10;
  Iterator iterate() const { return {0, count}; }
};

// An iterator that can jump.
struct Jumping {
  struct Iterator {
    int64_t place;
    int64_t end;
    int64_t* num_read;
    std::optional<int64_t> next() { return ++*num_read, place < end ? std::optional(place++) : std::nullopt; }
    void skip(int64_t count) { place += count; }
  };
  int64_t count;
  int64_t* num_read;
  Iterator iterate() const { return {0, count, num_read}; }
};

// Worker w has w + 1 samples.
struct Uneven {
  int64_t first = 1;
  CountUp::Iterator iterate() const {
    const auto* worker = worker_info();
    const int64_t id = worker ? worker->id : 0;
    return {100 * id, 100 * id + first + id};
  }
};

template <typename Loader>
std::vector<std::vector<int64_t>> batches_of(const Loader& loader) {
  std::vector<std::vector<int64_t>> result;
  for (auto& batch : loader) {
    result.emplace_back(batch.template const_data_ptr<int64_t>(),
                        batch.template const_data_ptr<int64_t>() + batch.numel());
  }
  return result;
}

TEST(Iterable, GivesItsBatchesEachEpoch) {
  const DataLoader loader(CountUp{5}, {.batch_size = 2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_THAT(batches_of(loader), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
  }
  EXPECT_THAT(batches_of(DataLoader(CountUp{5}, {.batch_size = 2, .drop_last = true})),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(batches_of(DataLoader(CountUp{0}, {.batch_size = 2, .num_workers = 2})), ElementsAre());
}

// Each worker in turn, as in Python; a worker that has ended is passed by.
TEST(Iterable, WorkersWhoseEndsDifferLoseNothing) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    EXPECT_THAT(batches_of(DataLoader(Uneven{}, {.num_workers = 3})),
                ElementsAre(ElementsAre(0), ElementsAre(100), ElementsAre(200), ElementsAre(101), ElementsAre(201),
                            ElementsAre(202)));
    EXPECT_THAT(batches_of(DataLoader(Uneven{0}, {.num_workers = 3, .prefetch_factor = 1})),
                ElementsAre(ElementsAre(100), ElementsAre(200), ElementsAre(201)));
    std::set<int64_t> seen;
    for (const auto& batch : batches_of(DataLoader(Uneven{}, {.num_workers = 3, .in_order = false}))) {
      seen.insert(batch.begin(), batch.end());
    }
    EXPECT_THAT(seen, ElementsAre(0, 100, 101, 200, 201, 202));
  }
}

// The consumer is late: all have ended, and some of the steps in between have never been.
TEST(Iterable, WorkersThatHaveAllEndedBeforeTheirBatchesAreTaken) {
  for (const bool in_order : {true, false}) {
    std::atomic<int> num_ends{0};
    struct Watched {
      std::atomic<int>* num_ends;
      struct Iterator {
        CountUp::Iterator inner;
        std::atomic<int>* num_ends;
        std::optional<int64_t> next() {
          auto value = inner.next();
          if (!value) ++*num_ends;
          return value;
        }
      };
      Iterator iterate() const { return {Uneven{0}.iterate(), num_ends}; }
    };
    const DataLoader loader(Watched{&num_ends}, {.num_workers = 3, .prefetch_factor = 10, .in_order = in_order});
    auto epoch = loader.start();
    while (num_ends < 3) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::multiset<int64_t> seen;
    while (const auto batch = epoch.next()) seen.insert(batch->item<int64_t>());
    EXPECT_THAT(seen, ElementsAre(100, 200, 201));
  }
}

TEST(Iterable, WithoutShardsEachWorkerGivesAll) {
  EXPECT_THAT(batches_of(DataLoader(CountUp{2}, {.num_workers = 2})),
              ElementsAre(ElementsAre(0), ElementsAre(0), ElementsAre(1), ElementsAre(1)));
}

TEST(Sharded, EachSampleComesOnceFromOneWorkerOfOneRank) {
  for (const int64_t size : {0, 1, 5, 12, 13, 17}) {
    for (const int64_t num_ranks : {1, 2, 3}) {
      for (const int num_workers : {0, 1, 2, 4}) {
        std::multiset<int64_t> seen;
        std::vector<int64_t> counts;
        for (int64_t rank = 0; rank < num_ranks; ++rank) {
          const DataLoader loader(sharded(CountUp{size}, {.num_replicas = num_ranks, .rank = rank}),
                                  {.batch_size = 2, .num_workers = num_workers});
          int64_t count = 0;
          for (const auto& batch : batches_of(loader)) {
            seen.insert(batch.begin(), batch.end());
            count += static_cast<int64_t>(batch.size());
            for (const auto sample : batch) EXPECT_EQ(sample % num_ranks, rank);
          }
          counts.push_back(count);
        }
        std::multiset<int64_t> all;
        for (int64_t i = 0; i < size; ++i) all.insert(i);
        EXPECT_EQ(seen, all) << size << " samples, " << num_ranks << " ranks, " << num_workers << " workers";
        EXPECT_LE(*std::max_element(counts.begin(), counts.end()), *std::min_element(counts.begin(), counts.end()) + 1);
      }
    }
  }
}

TEST(Sharded, SkipsWhereTheIteratorCan) {
  int64_t num_read = 0;
  const DataLoader loader(sharded(Jumping{100, &num_read}, {.num_replicas = 10, .rank = 3}), {.batch_size = 100});
  EXPECT_THAT(batches_of(loader), ElementsAre(ElementsAre(3, 13, 23, 33, 43, 53, 63, 73, 83, 93)));
  EXPECT_EQ(num_read, 11);
}

TEST(Sharded, OneRankWithoutAGroup) {
  EXPECT_EQ(batches_of(DataLoader(sharded(std::make_shared<CountUp>()), {.batch_size = 10})).front().size(), 10u);
  EXPECT_EQ(error_text<c10::ValueError>([] { sharded(CountUp{}, {.num_replicas = 2, .rank = 2}); }),
            "Invalid rank 2, rank should be in the interval [0, 1]");
}

TEST(Sharded, OfMoreRanksThanNumbersCanBeMultipliedBy) {
  const auto dataset = sharded(CountUp{10}, {.num_replicas = INT64_MAX, .rank = 7});
  EXPECT_THAT(batches_of(DataLoader(dataset, {.batch_size = 4, .num_workers = 2})), ElementsAre(ElementsAre(7)));
}

TEST(Iterable, GoesOnInTheMiddle) {
  for (const int num_workers : {0, 2}) {
    const auto make = [&] { return DataLoader(sharded(CountUp{11}), {.batch_size = 2, .num_workers = num_workers}); };
    const auto all = batches_of(make());
    const auto first = make();
    auto epoch = first.start();
    epoch.next();
    epoch.next();
    auto second = make();
    second.load_state_dict(first.state_dict());
    const auto rest = batches_of(second);
    EXPECT_EQ(rest, std::vector(all.begin() + 2, all.end()));
    EXPECT_EQ(batches_of(second), all) << "the next epoch begins at its beginning";
  }
}

TEST(Iterable, ToBeginBehindTheEndIsAnEpochThatIsOver) {
  for (const int num_workers : {0, 2}) {
    const DataLoader loader(CountUp{3}, {.num_workers = num_workers});
    EXPECT_FALSE(loader.start(INT64_MAX).next());
    DataLoader second(CountUp{3}, {.num_workers = num_workers});
    auto epoch = second.start();
    epoch.next();
    second.load_state_dict(second.state_dict());
    EXPECT_FALSE(second.start(INT64_MAX).next()) << "one more than can be counted";
  }
}

TEST(Iterable, OptionsThatItCannotHaveMessages) {
  const auto text = [](DataLoaderOptions options) {
    return error_text<c10::ValueError>([&] { DataLoader(CountUp{}, options); });
  };
  const auto order = std::make_shared<SequentialSampler>(10);
  EXPECT_EQ(text({.shuffle = true}),
            "DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle=True");
  EXPECT_EQ(text({.sampler = order}),
            "DataLoader with IterableDataset: expected unspecified sampler option, but got a sampler");
  EXPECT_EQ(text({.batch_sampler = std::make_shared<BatchSampler>(order, 2)}),
            "DataLoader with IterableDataset: expected unspecified batch_sampler option, but got a batch_sampler");
  EXPECT_EQ(text({.batch_size = -1}), "batch_size should be a positive integer value, but got batch_size=-1");
  EXPECT_EQ(error_text<c10::TypeError>([] { DataLoader(CountUp{}).size(); }),
            "[cohort] a DataLoader of an iterable dataset has no size, as the number of samples is not known");
}

TEST(Iterable, AnErrorNamesTheSampleOfItsIterator) {
  struct Broken {
    struct Iterator {
      std::optional<int64_t> next() { throw std::runtime_error("the line is torn"); }
    };
    Iterator iterate() const { return {}; }
  };
  EXPECT_EQ(error_text<c10::Error>([] { DataLoader(Broken{}, {.num_workers = 1}).begin(); }),
            "[cohort] DataLoader worker thread 0 of 1 could not read sample 0 of its iterator\n"
            "  caused by: the line is torn");
}

}  // namespace
}  // namespace cohort::data
