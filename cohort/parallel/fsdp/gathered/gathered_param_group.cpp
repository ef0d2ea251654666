#include "cohort/parallel/fsdp/gathered/gathered_param_group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <utility>

#include "cohort/comm/group/job_warning.h"
#include "cohort/comm/group/subgroups.h"
#include "cohort/parallel/fsdp/groups/in_autograd.h"
#include "cohort/parallel/fsdp/tensors/absent_gradients.h"
#include "cohort/parallel/fsdp/tensors/mesh_groups.h"

namespace cohort::fsdp {
namespace {

std::string access_message(const std::string& name) {
  return "[cohort] Parameter '" + name +
         "' is sharded: its full value is there only while the forward or backward pass of its fully_shard module "
         "runs. To read it elsewhere, call unshard() of that module before, and reshard() afterwards. Build optimizers "
         "on parameters() of the wrapper, which returns this rank's shards. Call forward on the wrapper, not on the "
         "module inside.";
}

// Returns a view that autograd does not treat as a view.
at::Tensor part_of(const at::Tensor& tensor, int64_t begin, int64_t count) {
  return tensor.narrow(0, begin, count).variable_data();
}

c10::ScalarType gather_dtype(const at::Tensor& tensor, const Options& options) {
  return tensor.is_floating_point() ? options.mp_policy.param_dtype.value_or(tensor.scalar_type())
                                    : tensor.scalar_type();
}

}  // namespace

GatheredParamGroup::GatheredParamGroup(const std::vector<NamedParameter>& parameters, const Group& shard_group,
                                       const Group& replica_group, std::shared_ptr<CommContext> context,
                                       const Options& options)
    : shard_group_(shard_group),
      replica_group_(replica_group),
      device_(context->device),
      rank_(shard_group->getRank()),
      world_size_(shard_group->getSize()),
      reduce_dtype_(options.mp_policy.reduce_dtype),
      context_(std::move(context)) {
  settings_.reshard_after_forward = options.reshard_after_forward;
  if (options.reshard_after_forward && std::holds_alternative<int>(*options.reshard_after_forward)) {
    split_after_forward(std::get<int>(*options.reshard_after_forward));
  }
  for (const auto& parameter : parameters) add(parameter, options);
  make_shards(options);
  for (size_t i = 0; i < items_.size(); ++i) shard(i);
  let_go();
}

void GatheredParamGroup::split_after_forward(int num_ranks) {
  TORCH_CHECK_VALUE(1 <= num_ranks && num_ranks <= world_size_ && world_size_ % num_ranks == 0,
                    "If passing reshard_after_forward as an int, it should be a factor of ", world_size_, ", not ",
                    num_ranks);
  if (num_ranks == 1) {
    comm::warn_once_per_job(
        "reshard_after_forward=1 (int) means resharding parameters to world size 1, instead of "
        "reshard_after_forward=true (bool)");
  }
  settings_.reshard_after_forward = num_ranks > 1;
  if (num_ranks == 1 || num_ranks == world_size_) return;
  std::vector<std::vector<int>> lists;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank % num_ranks == 0) lists.emplace_back();
    lists.back().push_back(rank);
  }
  part_group_ = split_group(shard_group_, lists);
}

void GatheredParamGroup::add(const NamedParameter& parameter, const Options& options) {
  const auto sizes = own_shard(parameter.tensor).sizes().vec();
  Chunking chunking{sizes, shard_dim(parameter, world_size_, options), world_size_};
  const auto dtype = gather_dtype(parameter.tensor, options);
  auto unsharded = at::empty(sizes, at::TensorOptions(dtype).device(device_));
  UnshardedStorage storage(unsharded, access_message(parameter.name));
  parameters_.push_back({parameter.name, parameter.tensor, {}, 0, chunking.dim});
  items_.push_back({.chunking = std::move(chunking), .unsharded = std::move(unsharded), .storage = std::move(storage)});
  items_.back().storage.release();  // so that at most one is allocated at a time
}

void GatheredParamGroup::make_shards(const Options& options) {
  std::vector<int64_t> keys, chunks;
  for (size_t i = 0; i < items_.size(); ++i) {
    keys.push_back(static_cast<int64_t>(parameters_[i].full.scalar_type()));
    chunks.push_back(items_[i].chunking.chunk());
  }
  const bool is_offloaded = options.offload_policy.offloads_to_cpu && !device_.is_cpu();
  for (auto& lane : make_lanes(keys, chunks)) {
    const auto first = lane.members.front();
    auto place = at::TensorOptions(parameters_[first].full.scalar_type()).device(is_offloaded ? at::kCPU : device_);
    if (is_offloaded) place = place.pinned_memory(options.offload_policy.pin_memory);
    GatherLane full{std::move(lane)};
    full.shards = at::zeros({full.width}, place);
    full.dtype = items_[first].unsharded.scalar_type();
    std::vector<int64_t> part_chunks;
    for (size_t i = 0; i < full.members.size(); ++i) {
      auto& item = items_[full.members[i]];
      item.lane = lanes_.size();
      item.place = i;
      const int num_parts = part_group_ ? part_group_->getSize() : 1;
      part_chunks.push_back(Chunking{{item.unsharded.numel()}, 0, num_parts}.chunk());
    }
    if (part_group_) {
      full.parts = make_lanes(std::vector<int64_t>(part_chunks.size(), 0), part_chunks).at(0);
    }
    lanes_.push_back(std::move(full));
  }
}

at::Tensor GatheredParamGroup::own_chunk(size_t index) const {
  const auto& item = items_[index];
  const auto& lane = lanes_[item.lane];
  return part_of(lane.shards, lane.offsets[item.place], item.chunking.chunk());
}

// The module's tensor keeps its identity, and its private memory is freed at once.
void GatheredParamGroup::shard(size_t index) {
  const at::NoGradGuard no_grad;
  auto& parameter = parameters_[index];
  auto& item = items_[index];
  const auto sizes = item.chunking.shard_sizes(rank_);
  const auto dim = item.chunking.dim;
  const auto begin = std::min(rank_ * item.chunking.shard_sizes(0)[dim], item.chunking.sizes[dim]);
  const auto chunk = own_chunk(index);
  parameter.offset =
      dim == 0 && item.chunking.sizes[0] > 0 ? begin * (item.unsharded.numel() / item.chunking.sizes[0]) : 0;
  parameter.shard = part_of(chunk, 0, c10::multiply_integers(sizes)).view(sizes).variable_data();
  const auto values = own_shard(parameter.full).detach();
  if (!values.is_meta()) parameter.shard.copy_(values.narrow(dim, begin, sizes[dim]));
  if (auto* const meta = torch::autograd::impl::get_autograd_meta(parameter.full)) {
    meta->grad_accumulator_.reset();  // it stores a dtype and a device
  }
  const bool requires_grad = parameter.full.requires_grad();
  put_own_shard(parameter.full, item.unsharded);
  // Makes a step count as a write to the full parameter, so that backward of an older forward notices it.
  torch::autograd::impl::set_version_counter(parameter.shard, torch::autograd::impl::version_counter(parameter.full));
  parameter.full.mutable_grad().reset();
  parameter.shard.set_requires_grad(requires_grad);
  follow_requires_grad(index);
}

void GatheredParamGroup::join(std::shared_ptr<CommContext> context, bool is_root) {
  context_ = std::move(context);
  is_root_ = is_root;
}

void GatheredParamGroup::check_place(size_t index) const {
  const auto& full = parameters_[index].full;
  TORCH_CHECK(
      own_shard(full).storage().unsafeGetStorageImpl() == items_[index].unsharded.storage().unsafeGetStorageImpl(),
      "[cohort] Parameter '", parameters_[index].name,
      "' is no longer where fully_shard has put it: to(), set_data() or a new tensor in its place has moved it. "
      "Convert a module before fully_shard, and write to its parameters with write().");
}

// Takes requires_grad from the full parameter or the shard, whichever has been changed.
void GatheredParamGroup::follow_requires_grad(size_t index) {
  auto& item = items_[index];
  const auto& [name, full, shard, offset, dim, spec, part] = parameters_[index];
  const bool before = item.requires_grad;
  item.requires_grad = full.requires_grad() != before ? full.requires_grad() : shard.requires_grad();
  full.set_requires_grad(item.requires_grad);
  shard.set_requires_grad(item.requires_grad);
  if (!item.requires_grad) {
    item.hook = {};
  } else if (!before) {
    item.hook = parallel::add_gradient_hook(full, [this](const at::Tensor&) {
      if (on_gradient_) on_gradient_();
    });
  }
}

void GatheredParamGroup::before_forward() {
  for (size_t i = 0; i < items_.size(); ++i) {
    check_place(i);
    follow_requires_grad(i);
  }
  if (!is_in_autograd()) phase_ = Phase::kForward;  // otherwise checkpointing recomputes it
  unshard(/*in_backward=*/false);
  wait_for_unshard();
}

bool GatheredParamGroup::reshards_after_forward() const {
  const auto& rule = settings_.reshard_after_forward;
  if (rule) return !std::holds_alternative<bool>(*rule) || std::get<bool>(*rule);
  return !is_root_ || !at::GradMode::is_enabled();  // otherwise backward needs it first
}

void GatheredParamGroup::after_module() { was_used_ = was_used_ || at::GradMode::is_enabled(); }

void GatheredParamGroup::after_forward() {
  if (is_in_autograd()) return;
  after_module();
  reshard();
  phase_ = Phase::kIdle;
}

void GatheredParamGroup::unshard(bool in_backward) {
  if (place_ == Place::kUnsharded || !gathering_.empty() || (in_backward && !settings_.unshard_in_backward)) return;
  const at::NoGradGuard no_grad;
  const SideStream::Scope scope(context_->gather_stream);
  const auto& group = place_ == Place::kPartlySharded ? part_group_ : shard_group_;
  for (auto& lane : lanes_) {
    const auto input =
        place_ == Place::kPartlySharded ? lane.own_shard : lane.shards.to(device_, lane.dtype, /*non_blocking=*/true);
    auto& gathering = gathering_.emplace_back();
    if (group->getSize() == 1) {
      gathering.output = input;
      continue;
    }
    gathering.output = settings_.all_gather->allocate(input.numel() * group->getSize(), input.options());
    gathering.work = (*settings_.all_gather)(gathering.output, input, group, /*async_op=*/true);
    used_in_current_stream(input);
  }
}

void GatheredParamGroup::wait_for_unshard() {
  if (gathering_.empty()) return;
  const at::NoGradGuard no_grad;
  const auto gathered = std::exchange(gathering_, {});
  const bool is_partly = place_ == Place::kPartlySharded;
  for (size_t number = 0; number < lanes_.size(); ++number) {
    const auto& lane = lanes_[number];
    const auto& [output, work] = gathered[number];
    if (!work) context_->gather_stream.block_current();
    if (work) work->wait();
    const Lane& used = is_partly ? lane.parts : lane;
    const auto rows = output.view({is_partly ? part_group_->getSize() : world_size_, used.width});
    for (size_t i = 0; i < used.offsets.size(); ++i) {
      auto& item = items_[lane.members[i]];
      item.storage.allocate();
      const auto num_ranks = static_cast<int>(rows.size(0));
      const auto how = is_partly ? Chunking{{item.unsharded.numel()}, 0, num_ranks} : item.chunking;
      copy_from_rows(rows.narrow(1, used.offsets[i], how.chunk()), how, item.unsharded);
    }
  }
  // The memory goes back to the stream of gathers, which gets it next, however far behind the current stream is.
  context_->gather_stream.wait_for_current();
  for (auto& lane : lanes_) lane.own_shard.reset();
  place_ = Place::kUnsharded;
}

void GatheredParamGroup::reshard() {
  if (phase_ == Phase::kForward) {
    if (!reshards_after_forward()) return;
    if (part_group_ && place_ == Place::kUnsharded) {
      keep_parts();
      return;
    }
  }
  let_go();
}

void GatheredParamGroup::keep_parts() {
  const at::NoGradGuard no_grad;
  const int rank = part_group_->getRank();
  for (auto& lane : lanes_) {
    lane.own_shard = at::zeros({lane.parts.width}, at::TensorOptions(lane.dtype).device(device_));
    for (size_t i = 0; i < lane.members.size(); ++i) {
      const auto unsharded = items_[lane.members[i]].unsharded.view({-1});
      const Chunking chunking{{unsharded.numel()}, 0, part_group_->getSize()};
      const auto count = chunking.shard_sizes(rank)[0];
      if (count == 0) continue;
      lane.own_shard.narrow(0, lane.parts.offsets[i], count).copy_(unsharded.narrow(0, rank * chunking.chunk(), count));
    }
  }
  context_->gather_stream.wait_for_current();  // before backward gathers them
  for (auto& item : items_) item.storage.release();
  place_ = Place::kPartlySharded;
}

void GatheredParamGroup::let_go() {
  drop_gathering();
  for (auto& item : items_) item.storage.release();
  for (auto& lane : lanes_) lane.own_shard.reset();
  place_ = Place::kSharded;
}

void GatheredParamGroup::let_go_after_backward() {
  if (settings_.reshard_after_backward && !makes_graph_) let_go();
}

// Drops gathers whose results nobody needs.
void GatheredParamGroup::drop_gathering() {
  for (const auto& gathering : std::exchange(gathering_, {})) {
    if (gathering.work) gathering.work->wait();
    used_in_current_stream(gathering.output);
  }
}

GroupMemory GatheredParamGroup::memory() const {
  GroupMemory memory;
  for (size_t i = 0; i < items_.size(); ++i) {
    const auto& item = items_[i];
    const auto& lane = lanes_[item.lane];
    auto& counted = memory.parameters.emplace_back();
    if (item.storage.is_there()) counted.num_copy_bytes = item.unsharded.nbytes();
    if (lane.own_shard.defined()) {
      const Chunking part{{item.unsharded.numel()}, 0, part_group_->getSize()};
      counted.num_copy_bytes += static_cast<size_t>(part.chunk()) * item.unsharded.itemsize();
    }
    const auto gradient = full_gradient(parameters_[i].full);
    counted.num_waiting_bytes = bytes_in({gradient.defined() ? own_shard(gradient) : at::Tensor(), item.accumulated});
    const auto sums = kept_back_.find(reduce_dtype(item.lane));
    if (sums == kept_back_.end() || !sums->second.defined() || !item.requires_grad) continue;
    counted.num_waiting_bytes += static_cast<size_t>(item.chunking.chunk()) * sums->second.itemsize();
  }
  return memory;
}

bool GatheredParamGroup::before_backward() {
  if (phase_ == Phase::kBeforeBackward) return false;
  phase_ = Phase::kBeforeBackward;
  makes_graph_ = at::GradMode::is_enabled();
  is_finished_ = false;  // gradients of another forward pass will come
  unshard(/*in_backward=*/true);
  wait_for_unshard();
  return true;
}

void GatheredParamGroup::after_backward() {
  phase_ = Phase::kAfterBackward;
  if (++num_done_ >= num_expected_) {
    finish_pass();
  } else if (modules_to_run_.num_modules() == 1) {
    let_go_after_backward();
  }
}

void GatheredParamGroup::end_backward() {
  const bool has_gradients = std::any_of(parameters_.begin(), parameters_.end(),
                                         [](const auto& parameter) { return full_gradient(parameter.full).defined(); });
  if (!is_finished_ && (was_used_ || has_gradients)) finish_pass();
  drop_gathering();
  // A parameter that stayed full over an optimizer step would have old values.
  let_go_after_backward();
  phase_ = Phase::kIdle;
  num_expected_ = num_done_ = 0;
  is_finished_ = false;
  // Gradients were made in another stream, and the optimizer frees them in this one.
  for (const auto& parameter : parameters_) used_in_current_stream(parameter.shard.grad());
  // Accumulated gradients must be reduced, whether or not the pass that reduces uses the group.
  was_used_ = was_used_ && !settings_.requires_gradient_sync;
}

}  // namespace cohort::fsdp
