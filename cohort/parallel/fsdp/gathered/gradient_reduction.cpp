#include "cohort/parallel/fsdp/gathered/gradient_reduction.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "cohort/parallel/fsdp/settings/purpose.h"

namespace cohort::fsdp {
namespace {

Lane lane_of(const std::vector<GradientReduction::Part>& parts) {
  std::vector<int64_t> chunks;
  for (const auto& part : parts) chunks.push_back(part.chunking.chunk());
  return make_lanes(std::vector<int64_t>(chunks.size(), 0), chunks).at(0);
}

int size_of(const Group& group) { return group ? group->getSize() : 1; }

}  // namespace

GradientReduction::GradientReduction(std::vector<Part> parts, c10::ScalarType dtype, c10::Device device,
                                     const ReduceSettings& settings, const SideStream& stream)
    : parts_(std::move(parts)),
      settings_(settings),
      stream_(stream),
      factors_(divide_factors({dtype, size_of(settings.shard_group), size_of(settings.replica_group),
                               settings.divide_factor, settings.only_sums})),
      lane_(lane_of(parts_)) {
  const at::NoGradGuard no_grad;
  const auto num_shards = size_of(settings_.shard_group);
  const auto num_parts = static_cast<int64_t>(parts_.size());
  const auto width = lane_.width + num_parts;
  const auto options = at::TensorOptions(dtype).device(device);
  input_ = settings_.reduce_scatter->allocate(num_shards * width, options);
  const auto rows = input_.view({num_shards, width});
  std::vector<float> are_used;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const auto grad = std::exchange(parts_[i].grad, at::Tensor());
    const auto place = rows.narrow(1, lane_.offsets[i], parts_[i].chunking.chunk());
    has_grad_.push_back(grad.defined());
    are_used.push_back(grad.defined() ? 1 : 0);
    if (grad.defined()) {
      copy_to_rows(grad, parts_[i].chunking, place);
    } else {
      place.zero_();
    }
  }
  rows.narrow(1, lane_.width, num_parts).copy_(at::tensor(are_used), /*non_blocking=*/true);
  stream_.wait_for_current();
  const SideStream::Scope scope(stream_);
  start(rows);
  used_in_current_stream(input_);
}

void GradientReduction::start(const at::Tensor& rows) {
  if (factors_.before != 1) rows.div_(factors_.before);
  const auto width = rows.size(1);
  if (rows.size(0) == 1) {
    output_ = rows[0];
    if (settings_.divide_factor && factors_.before == 1 && factors_.after == 1) output_.div_(*settings_.divide_factor);
    return;
  }
  output_ = settings_.reduce_scatter->allocate(width, rows.options());
  work_ = (*settings_.reduce_scatter)(output_, input_, settings_.shard_group, factors_.reduce_scatter,
                                      /*async_op=*/true);
}

void GradientReduction::finish(at::Tensor& kept_back, const Give& give) {
  const at::NoGradGuard no_grad;
  const SideStream::Scope scope(stream_);
  if (auto work = std::exchange(work_, {})) work->wait();
  input_.reset();
  if (settings_.replica_group) {
    if (kept_back.defined()) output_.add_(std::exchange(kept_back, at::Tensor()));
    if (!settings_.all_reduces) {
      kept_back = output_;
      return;
    }
    const comm::CalledFor purpose(kExchange);
    all_reduce(output_, {.op = factors_.all_reduce, .group = settings_.replica_group});
  }
  if (settings_.all_reduce_hook) {
    settings_.hook_stream.wait_for_current();
    {
      const SideStream::Scope in_hook_stream(settings_.hook_stream);
      settings_.all_reduce_hook(output_.narrow(0, 0, lane_.width));
    }
    settings_.hook_stream.block_current();
  }
  if (factors_.after != 1) output_.div_(factors_.after);
  at::Tensor are_used;  // read only if this rank cannot know
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (!has_grad_[i] && !settings_.gives_unused) {
      if (!are_used.defined()) are_used = output_.narrow(0, lane_.width, parts_.size()).to(at::kCPU, at::kFloat);
      if (are_used.const_data_ptr<float>()[i] == 0) continue;
    }
    give(parts_[i].index, output_.narrow(0, lane_.offsets[i], parts_[i].chunking.chunk()));
  }
  output_.reset();
}

}  // namespace cohort::fsdp
