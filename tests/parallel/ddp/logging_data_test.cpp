// What DDP says of itself. tests/e2e/parallel compares it with Python's.
#include "cohort/parallel/ddp/logging_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/parallel/ddp/distributed_data_parallel.h"
#include "cohort/parallel/ddp/hooks/compress_hooks.h"
#include "tests/parallel/ddp/nets.h"
#include "tests/support/marks.h"
#include "tests/support/rank_threads.h"
#include "tests/support/require.h"

BACKEND_OF_FILE(both)

namespace cohort::ddp {
namespace {

using test::error_of;
using test::run_rank_threads;

void run_steps(auto& ddp, int rank, int count) {
  for (int step = 0; step < count; ++step) ddp(test::batch_of(rank, step)).sum().backward();
}

TEST(DdpLoggingData, BeforeAndAfterSteps) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Options options;
    options.process_group = group;
    options.bucket_cap_mb = 0.0005;
    DistributedDataParallel ddp(test::seeded_net<test::Mlp>(), options);
    auto data = ddp->ddp_logging_data();
    REQUIRE(data.strs_map["module_name"] == "Mlp");
    REQUIRE(data.strs_map["backend_name"] == test::backend_of_tests());
    REQUIRE(data.strs_map["dtypes"] == "float");
    REQUIRE(data.strs_map["bucket_sizes"] == "1936");
    REQUIRE(data.ints_map["bucket_cap_bytes"] == 524);
    REQUIRE(data.ints_map["rank"] == rank && data.ints_map["world_size"] == 2);
    REQUIRE(data.ints_map["num_parameter_tensors"] == 6);
    REQUIRE(data.ints_map["total_parameter_size_bytes"] == 1936);
    REQUIRE(data.ints_map["output_device"] == -1);
    REQUIRE(data.ints_map["iteration"] == 0);
    REQUIRE(!data.ints_map.contains("avg_forward_compute_time") && !data.ints_map.contains("has_error"));
    run_steps(ddp, rank, 3);
    data = ddp->ddp_logging_data();
    REQUIRE(data.ints_map["iteration"] == 3);
    REQUIRE(data.ints_map["has_rebuilt_buckets"] == 1);
    const auto buckets = ddp->reducer().buckets();
    REQUIRE(buckets.size() > 1);
    REQUIRE(data.ints_map["num_buckets_reduced"] == static_cast<int64_t>(buckets.size()));
    std::vector<std::string> indices;
    std::vector<size_t> sizes;
    for (const auto& bucket : buckets) {
      indices.push_back(c10::Join(" ", bucket));
      sizes.push_back(0);
      for (const size_t index : bucket) sizes.back() += ddp->parameters()[index].nbytes();
    }
    REQUIRE(data.strs_map["rebuilt_bucket_sizes"] == c10::Join(", ", sizes));
    REQUIRE(data.strs_map["rebuilt_per_bucket_param_indices"] == c10::Join(", ", indices));
    REQUIRE(data.ints_map["forward_compute_time"] > 0);
    REQUIRE(data.ints_map["backward_compute_time"] > 0);
    REQUIRE(data.ints_map["backward_comm_time"] > 0);
    REQUIRE(data.ints_map["avg_backward_comm_time"] > 0);
    REQUIRE(data.ints_map["backward_comm_time_end"] - data.ints_map["backward_comm_time_start"] ==
            data.ints_map["backward_comm_time"]);
    REQUIRE(data.ints_map["unused_parameter_size"] == 0);
  });
}

TEST(DdpLoggingData, UnusedParametersHooksAndStaticGraphs) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Options options;
    options.process_group = group;
    options.find_unused_parameters = true;
    DistributedDataParallel ddp(test::seeded_net<test::Branches>(), options);
    ddp->register_comm_hook(group, fp16_compress_hook);
    for (int step = 0; step < 2; ++step) ddp(test::batch_of(rank, step), true, false).sum().backward();
    auto data = ddp->ddp_logging_data();
    REQUIRE(data.ints_map["unused_parameter_size"] == (4 * 4 + 4) * 4);
    REQUIRE(data.ints_map["find_unused_parameters"] == 1);
    REQUIRE(data.strs_map["comm_hook"] == "custom");
    REQUIRE(!data.ints_map.contains("static_graph"));
    options.find_unused_parameters = false;
    options.static_graph = true;
    DistributedDataParallel fixed(test::seeded_net<test::Mlp>(), options);
    fixed->register_builtin_comm_hook(BuiltinCommHookType::kFp16Compress);
    data = fixed->ddp_logging_data();
    REQUIRE(data.ints_map["static_graph"] == 1);
    REQUIRE(data.strs_map["comm_hook"] == "BuiltinCommHookType.FP16_COMPRESS");
  });
}

TEST(DdpLoggingData, ReportHasARowPerBucket) {
  run_rank_threads(2, [](int rank, const Group& group) {
    Options options;
    options.process_group = group;
    options.bucket_cap_mb = 0.0005;
    DistributedDataParallel ddp(test::seeded_net<test::Mlp>(), options);
    const auto head = "DistributedDataParallel of Mlp on rank " + std::to_string(rank) + " of 2, backend " +
                      test::backend_of_tests() + ": ";
    test::require_equal(ddp->ddp_report(), head + "no step was noted\n");
    run_steps(ddp, rank, 12);
    const auto report = ddp->ddp_report();
    REQUIRE(report.starts_with(head + "mean of 10 of 12 steps, in microseconds\n  forward "));
    const auto num_buckets = static_cast<int64_t>(ddp->reducer().buckets().size());
    REQUIRE(std::count(report.begin(), report.end(), '\n') == 4 + num_buckets);
    REQUIRE(report.find("\n       1  ") != std::string::npos);
  });
}

TEST(DdpLoggingData, SampleRateMessage) {
  run_rank_threads(1, [](int, const Group& group) {
    DistributedDataParallel ddp(test::Mlp(), {.process_group = group});
    test::require_equal(error_of([&] { ddp->set_ddp_runtime_logging_sample_rate(0); }),
                        "DDP runtime logging sample rate should be equal or greater than 1, got 0");
  });
}

}  // namespace
}  // namespace cohort::ddp
