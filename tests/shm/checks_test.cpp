// The checks of the other tests see what they are there for: data of a wrong rank, or of a wrong place.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/shm/checks.h"
#include "tests/shm/ranks.h"

namespace cohort::shm {
namespace {

constexpr OpKind kKinds[] = {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter, OpKind::kBroadcast,
                             OpKind::kAllGather, OpKind::kGather, OpKind::kScatter,       OpKind::kAllToAll};
constexpr DType kTypes[] = {DType::kFloat32, DType::kInt64, DType::kUInt8};
constexpr int kWorldSize = 3;

/// How many ranks complain where `spoil` has made some of the data wrong.
int num_complaints(const Case& test_case, const std::function<void(Case&, int rank)>& spoil) {
  testing::TestPartResultArray results;
  {
    using Reporter = testing::ScopedFakeTestPartResultReporter;
    Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
    run_threads(kWorldSize, [&](Group& group) {
      Case own = test_case;
      spoil(own, group.rank());
      EXPECT_EQ(text_of(run_case(group, own)), "success");
    });
  }
  return results.size();
}

void expect_seen(const std::string& what, const std::function<void(Case&, int rank)>& spoil) {
  int salt = 0;
  for (const OpKind kind : kKinds) {
    for (const DType dtype : kTypes) {
      for (const size_t count : {4, 1000}) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kProduct}) {
          const Case test_case{
              .kind = kind, .dtype = dtype, .op = op, .count = count, .root = ++salt % 2, .salt = salt};
          const auto where = std::string(name_of(kind)) + " of " + std::to_string(count) + " " + name_of(dtype);
          EXPECT_EQ(num_complaints(test_case, [](Case&, int) {}), 0) << where;
          EXPECT_GT(num_complaints(test_case, spoil), 0) << where << ": " << what;
        }
      }
    }
  }
}

TEST(Checks, SeeARankThatHasAnothersData) {
  expect_seen("ranks 0 and 1 both have the data of 2", [](Case& test_case, int rank) {
    if (rank < 2) test_case.data_rank = 2;
  });
}

TEST(Checks, SeeElementsInAWrongPlace) {
  expect_seen("one element off", [](Case& test_case, int rank) {
    if (rank < 2) test_case.data_shift = 1;
  });
}

// A sum does not tell which rank brought which term; what is moved does.
TEST(Checks, SeeASwappedPairOfRanks) {
  for (const OpKind kind :
       {OpKind::kBroadcast, OpKind::kAllGather, OpKind::kGather, OpKind::kScatter, OpKind::kAllToAll}) {
    for (const DType dtype : kTypes) {
      const Case test_case{.kind = kind, .dtype = dtype, .count = 4, .root = 1, .salt = 5};
      EXPECT_GT(num_complaints(test_case,
                               [](Case& own, int rank) {
                                 if (rank < 2) own.data_rank = 1 - rank;
                               }),
                0)
          << name_of(kind);
    }
  }
}

}  // namespace
}  // namespace cohort::shm
