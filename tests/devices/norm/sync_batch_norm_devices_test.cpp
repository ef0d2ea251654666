// SyncBatchNorm on devices, each rank's own: batch norm of the joined batch there, too.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <optional>

#include "cohort/parallel/norm/convert_sync_batch_norm.h"
#include "tests/devices/in_stream.h"
#include "tests/parallel/norm/sync_batches.h"
#include "tests/support/sim_device/device_test.h"
#include "tests/support/sim_device/streams.h"

namespace cohort::sim {
namespace {

using SyncBatchNormDevices = DeviceTest;
using test::SyncCase;

template <class Norm>
void expect_joint_on_devices(SyncCase c, Norm (*make)(const SyncCase&, const Group&), bool in_side_stream = false) {
  run_ranks_with_devices(static_cast<int>(c.rows.size()),
                         [&](int rank, const Group& group, const RankDevices& devices) {
                           SyncCase own = c;
                           own.device = devices.first;
                           auto norm = make(own, group);
                           norm->to(devices.first);
                           std::optional<InStream> side;
                           if (in_side_stream) side.emplace(new_stream(devices.first.index()));
                           const auto result = test::run_share(own, *norm, rank);
                           test::require_joint(own, result, rank, group);
                         });
}

SyncBatchNorm synchronized(const SyncCase& c, const Group& group) {
  auto options = c.options;
  options.process_group = group;
  return SyncBatchNorm(c.shape[0], options);
}

torch::nn::BatchNorm2d converted(const SyncCase& c, const Group& group) {
  return convert_sync_batchnorm(torch::nn::BatchNorm2d(torch::nn::BatchNormOptions(c.shape[0])
                                                           .momentum(c.options.momentum)
                                                           .affine(c.options.affine)
                                                           .track_running_stats(c.options.track_running_stats)),
                                group);
}

TEST_F(SyncBatchNormDevices, EqualsBatchNormOfTheJoinedBatch) {
  expect_joint_on_devices({.rows = {2, 3, 1}}, synchronized);
  expect_joint_on_devices({.shape = {4, 3, 2}, .format = at::MemoryFormat::ChannelsLast}, synchronized);
  expect_joint_on_devices({.rows = {4, 5}, .shape = {4, 3}, .options = {.momentum = std::nullopt}}, synchronized,
                          /*in_side_stream=*/true);
}

TEST_F(SyncBatchNormDevices, EmptyBatches) { expect_joint_on_devices({.rows = {0, 3}}, synchronized); }

TEST_F(SyncBatchNormDevices, SixteenBits) {
  expect_joint_on_devices({.rows = {20, 30}, .dtype = at::kHalf, .offset = 8, .tolerance = 6e-4}, synchronized);
}

TEST_F(SyncBatchNormDevices, ConvertedLayers) {
  expect_joint_on_devices({.shape = {4, 3, 2}}, converted);
  expect_joint_on_devices({.shape = {4, 3, 2}, .options = {.affine = false, .track_running_stats = false}}, converted,
                          /*in_side_stream=*/true);
}

}  // namespace
}  // namespace cohort::sim
