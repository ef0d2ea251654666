// Names that have left namespace cohort stay there until the next release.
#include <gtest/gtest.h>

#include <type_traits>

#include "cohort/comm/memory/shared_allocator.h"
#include "cohort/dtensor/api/distribute_module.h"
#include "cohort/dtensor/wrapper/comm_counts.h"
#include "cohort/mesh/shard.h"
#include "cohort/mesh/shard_spec.h"
#include "cohort/parallel/context/ulysses_attention.h"
#include "cohort/parallel/dims/parallel_dims.h"
#include "cohort/parallel/norm/convert_sync_batch_norm.h"
#include "cohort/parallel/pipeline/pipeline_schedule.h"
#include "cohort/parallel/tensor/parallel_layers.h"
#include "cohort/parallel/tensor/regions.h"

namespace {

static_assert(std::is_same_v<cohort::SharedAllocatorOptions, cohort::comm::SharedAllocatorOptions>);
static_assert(std::is_same_v<cohort::CommCounts, cohort::dtensor::CommCounts>);
static_assert(std::is_same_v<cohort::ShardSpec, cohort::mesh::ShardSpec>);
static_assert(std::is_same_v<cohort::UlyssesOptions, cohort::parallel::UlyssesOptions>);
static_assert(std::is_same_v<cohort::ParallelDims, cohort::parallel::ParallelDims>);
static_assert(std::is_same_v<cohort::PipelineForecast, cohort::pipeline::PipelineForecast>);
static_assert(std::is_same_v<cohort::ColumnParallelLinear, cohort::parallel::ColumnParallelLinear>);

TEST(OldNames, OfFunctions) {
  EXPECT_EQ(&cohort::use_shared_allocator, &cohort::comm::use_shared_allocator);
  EXPECT_EQ(&cohort::distribute_parameters, &cohort::dtensor::distribute_parameters);
  EXPECT_EQ(&cohort::chunk_range, &cohort::mesh::chunk_range);
  EXPECT_EQ(&cohort::axis_of, &cohort::parallel::axis_of);
  EXPECT_EQ(&cohort::has_sync_batch_norm, &cohort::norm::has_sync_batch_norm);
  EXPECT_EQ(&cohort::forecast_pipeline, &cohort::pipeline::forecast_pipeline);
  EXPECT_EQ(&cohort::copy_to_region, &cohort::parallel::copy_to_region);
}

}  // namespace
