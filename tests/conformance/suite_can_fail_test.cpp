// The suite proves something only if it reports backends that are wrong.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "cohort/comm/gloo/make_gloo_backend.h"
#include "tests/conformance/suite.h"
#include "tests/support/rank_threads.h"

namespace cohort::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Does all_reduce and broadcast by Gloo, and nothing else.
class FewOperations : public c10d::Backend {
 public:
  explicit FewOperations(const comm::BackendRequest& request)
      : Backend(request.rank, request.world_size), gloo_(comm::make_gloo_backend(request)) {}
  const std::string getBackendName() const override { return "few"; }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return gloo_->allreduce(tensors, options);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return gloo_->broadcast(tensors, options);
  }

 protected:
  c10::intrusive_ptr<c10d::Backend> gloo_;
};

struct DropsRankOne final : FewOperations {
  using FewOperations::FewOperations;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    if (getRank() == 1) tensors[0].zero_();
    return FewOperations::allreduce(tensors, options);
  }
};

struct ForgetsToCopyBack final : FewOperations {
  using FewOperations::FewOperations;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Tensors copies{tensors[0].clone(at::MemoryFormat::Contiguous)};
    return FewOperations::broadcast(tensors[0].is_contiguous() ? tensors : copies, options);
  }
};

struct WritesBesideTheTensor final : FewOperations {
  using FewOperations::FewOperations;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    auto work = FewOperations::broadcast(tensors, options);
    work->wait();
    if (tensors[0].numel() > 1 && !tensors[0].is_contiguous()) {
      tensors[0].as_strided({1}, {1}, tensors[0].storage_offset() + 1).zero_();
    }
    return work;
  }
};

template <class BackendType>
Report report_of(const std::vector<std::string>& only, const std::vector<Excuse>& excused = {}) {
  Report last_rank;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  run_rank_threads(2,
                   [&](int rank, const Group& group) {
                     const auto report =
                         run_conformance(*group->getBackend(c10::DeviceType::CPU),
                                         {.excused = excused, .store = store, .extent = Extent::kShort, .only = only});
                     if (rank == 1) last_rank = report;
                   },
                   {.make_backend = [](const comm::BackendRequest& request) -> c10::intrusive_ptr<c10d::Backend> {
                     return c10::make_intrusive<BackendType>(request);
                   }});
  return last_rank;
}

TEST(ConformanceSuite, ReportsADroppedContribution) {
  const auto report = report_of<DropsRankOne>({"all_reduce"});
  EXPECT_GT(report.num_problems, 50);
  EXPECT_EQ(report.problems.at(0),
            "all_reduce PRODUCT, float32[1] strided, rank 1 of 2: result: expected [-2], got [0]");
}

TEST(ConformanceSuite, ReportsAResultThatIsNotCopiedBack) {
  const auto report = report_of<ForgetsToCopyBack>({"broadcast"});
  ASSERT_GT(report.num_problems, 0);
  EXPECT_THAT(report.problems, Each(AllOf(Not(HasSubstr("contiguous")), HasSubstr(": result: expected "))));
}

TEST(ConformanceSuite, ReportsBytesWrittenBesideATensor) {
  const auto report = report_of<WritesBesideTheTensor>({"broadcast"});
  ASSERT_GT(report.num_problems, 0);
  EXPECT_THAT(report.problems, Contains("broadcast, float64[13] strided, rank 1 of 2: result: bytes beside the "
                                        "tensor were overwritten"));
}

TEST(ConformanceSuite, ReportsASkipWithoutAnExcuse) {
  const auto report = report_of<FewOperations>({"gather"});
  EXPECT_GT(report.num_skipped, 0);
  EXPECT_EQ(report.num_problems, report.num_skipped);
  EXPECT_EQ(report.num_run, 0);
  EXPECT_THAT(report.problems, Contains("gather, float32[1] strided, rank 1 of 2: skipped without an excuse: Backend "
                                        "few does not support gather"));
}

// Its problems are shown, and the job fails.
TEST(ConformanceSuite, CountsThatItHasGivenUp) {
  const auto report = report_of<FewOperations>({});
  EXPECT_EQ(report.num_problems, 201) << "the last one is that it stopped there";
  EXPECT_EQ(report.problems.back(), "given up: too many problems");
}

TEST(ConformanceSuite, AcceptsAnExcuse) {
  const auto report = report_of<FewOperations>({"gather", "broadcast"}, {{"gather", "this test"}});
  EXPECT_GT(report.num_skipped, 0);
  EXPECT_GT(report.num_run, 0);
  EXPECT_EQ(report.num_problems, 0);
}

}  // namespace
}  // namespace cohort::test
