#include "cohort/parallel/fsdp/host_param_group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <sched.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "cohort/base/log.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/common_memory.h"
#include "cohort/comm/shm/element_types.h"
#include "cohort/parallel/fsdp/replica_sum.h"
#include "cohort/shm/kernels/kernels.h"

namespace cohort::fsdp {
namespace {

using Area = GradientPlace::Area;

// How long backward waits for ranks that have not read this one's gradients. Then its memory grows instead: whoever is lost
// will be missed at the end of backward.
constexpr auto kPatience = std::chrono::milliseconds(20);
constexpr size_t kLeastWindowBytes = size_t{16} << 20;

// As many gradients as a program will hardly add up without looking at them.
constexpr int kManyPasses = 32;

void warn_of_idle_optimizer() {
  base::warn_once(
      std::to_string(kManyPasses) +
      " backward passes of a fully_shard module have added up gradients, and nobody has used or cleared them. "
      "An optimizer that was built on the module's own parameters trains nothing: build it on what "
      "model->parameters() of the wrapper gives. If your program adds up the gradients of so many passes, all "
      "is well.");
}

std::vector<size_t> bytes_of(const std::vector<NamedParameter>& parameters) {
  std::vector<size_t> bytes;
  for (const auto& parameter : parameters) bytes.push_back(parameter.tensor.nbytes());
  return bytes;
}

template <class Memory>
at::Tensor tensor_in(std::byte* data, at::IntArrayRef sizes, Memory owner, at::ScalarType dtype) {
  return at::from_blob(
      data, sizes, [owner = std::move(owner)](void*) {}, at::TensorOptions(dtype));
}

}  // namespace

HostParamGroup::HostParamGroup(const std::vector<NamedParameter>& parameters, const Group& group,
                               const Group& replica_group)
    : group_(group), replica_group_(replica_group), rank_(group->getRank()), world_size_(group->getSize()), arenas_(comm::arenas_of(group)) {
  const auto bytes = bytes_of(parameters);
  layout_ = lay_out(bytes);
  const HostBoard::Size size{world_size_, cut_into_chunks(bytes).size(), parameters.size()};
  memory_ = comm::make_common_memory(layout_.num_bytes, /*has_pages=*/true, group);
  const auto num_staged = layout_.num_bytes * static_cast<size_t>(world_size_);
  staging_ = comm::make_common_memory(num_staged, /*has_pages=*/false, group);
  board_ = std::make_unique<HostBoard>(comm::make_common_memory(size.num_bytes(), true, group).writable, rank_, size);
  for (const auto& parameter : parameters) parameters_.push_back({parameter.name, parameter.tensor, {}, 0});
  items_.resize(parameters.size());
  for (auto& members : cut_into_chunks(bytes)) {
    size_t chunk_bytes = 0;
    for (const auto i : members) {
      items_[i].chunk = chunks_.size();
      chunk_bytes += bytes[i];
    }
    window_bytes_ = std::max(window_bytes_, 2 * chunk_bytes);
    chunks_.push_back({.members = std::move(members)});
  }
  window_bytes_ = std::max(window_bytes_, kLeastWindowBytes);
  std::vector<WriteGuard::Range> ranges;
  for (size_t i = 0; i < items_.size(); ++i) {
    share(i);
    ranges.push_back({memory_.readable->data() + layout_.offsets[i], bytes[i], parameters_[i].name});
  }
  guard_ = std::make_unique<WriteGuard>(ranges);
  begin_pass();
}

// The module's tensor keeps its identity. Its private memory is let go at once, so that a rank never has two whole models.
void HostParamGroup::share(size_t index) {
  auto& parameter = parameters_[index];
  auto& item = items_[index];
  const at::NoGradGuard no_grad;
  const auto values = parameter.full.detach();
  const auto sizes = values.sizes().vec();
  const auto dtype = values.scalar_type();
  const auto offset = layout_.offsets[index];
  item.slice = slice_of(sizes, rank_, world_size_);
  parameter.offset = item.slice.begin;
  auto* const begin = memory_.writable->data() + offset + static_cast<size_t>(item.slice.begin) * values.element_size();
  parameter.shard = tensor_in(begin, shard_sizes(sizes, rank_, world_size_), memory_.writable, dtype);
  if (!values.is_meta()) {
    parameter.shard.view({-1}).copy_(values.view({-1}).narrow(0, item.slice.begin, item.slice.count));
  }
  auto* const readable = const_cast<std::byte*>(memory_.readable->data()) + offset;
  const auto whole = tensor_in(readable, sizes, memory_.readable, dtype);
  // As set_data(), which refuses tensors of the meta device.
  parameter.full.unsafeGetTensorImpl()->shallow_copy_from(whole.getIntrusivePtr());
  // A step counts as a write to the whole parameter, so that backward of an older forward notices.
  torch::autograd::impl::set_version_counter(parameter.shard, torch::autograd::impl::version_counter(parameter.full));
  follow_requires_grad(index);
}

void HostParamGroup::follow_requires_grad(size_t index) {
  auto& parameter = parameters_[index];
  auto& item = items_[index];
  item.requires_grad = parameter.full.requires_grad();
  parameter.shard.set_requires_grad(item.requires_grad);
  item.hook = {};
  if (!item.requires_grad) return;
  item.hook = parallel::add_gradient_hook(parameter.full, [this, index](const at::Tensor&) { on_gradient(index); });
}

void HostParamGroup::before_forward() {
  const auto* const begin = memory_.readable->data();
  const auto size = memory_.readable->size();
  for (size_t i = 0; i < items_.size(); ++i) {
    const auto& full = parameters_[i].full;
    const auto* const data = static_cast<const std::byte*>(full.unsafeGetTensorImpl()->storage().data());
    TORCH_CHECK(
        full.numel() == 0 || (begin <= data && data < begin + size), "Parameter '", parameters_[i].name,
        "' is no longer where fully_shard has put it: to(), set_data() or a new tensor in its place has moved it. "
        "Convert a module before fully_shard, and write to its parameters with write().");
    if (full.requires_grad() != items_[i].requires_grad) follow_requires_grad(i);
  }
}

void HostParamGroup::begin_pass() {
  for (auto& chunk : chunks_) {
    chunk.num_pending = 0;
    for (const auto i : chunk.members) {
      items_[i].has_arrived = false;
      if (items_[i].requires_grad) ++chunk.num_pending;
    }
    chunk.is_posted = false;
    chunk.is_reduced = false;
  }
}

void HostParamGroup::on_gradient(size_t index) {
  if (on_gradient_) on_gradient_();
  if (!settings_.requires_gradient_sync) return;
  auto& item = items_[index];
  auto& chunk = chunks_[item.chunk];
  TORCH_CHECK(!chunk.is_posted, "Parameter '", parameters_[index].name,
              "' has got a second gradient in one backward pass, as reentrant activation checkpointing makes them. Use "
              "checkpoint() with use_reentrant = false.");
  if (std::exchange(item.has_arrived, true) || chunk.num_pending == 0) return;
  if (--chunk.num_pending > 0) return;
  post(item.chunk);
  poll();
  bound_memory();
}

void HostParamGroup::post(size_t number) {
  auto& chunk = chunks_[number];
  for (const auto i : chunk.members) board_->set_place(i, put(i, chunk));
  num_bytes_in_flight_ += chunk.num_bytes_in_flight;
  board_->post(number, pass());
  chunk.is_posted = true;
  ++num_unfinished_;
}

GradientPlace HostParamGroup::put(size_t index, Chunk& chunk) {
  const auto& parameter = parameters_[index];
  const at::NoGradGuard no_grad;
  auto grad = std::exchange(parameter.full.mutable_grad(), at::Tensor());
  if (!grad.defined() || grad.numel() == 0) return {};
  TORCH_CHECK(grad.layout() == at::kStrided, "fully_shard does not support sparse gradients, but that of '",
              parameter.name, "' is one");
  grad = grad.detach().to(parameter.full.scalar_type()).contiguous();
  const auto* const data = static_cast<const std::byte*>(grad.const_data_ptr());
  if (!arenas_.empty()) {
    const auto& arena = *arenas_[static_cast<size_t>(rank_)];
    if (arena.data() <= data && data + grad.nbytes() <= arena.data() + arena.size()) {
      chunk.num_bytes_in_flight += grad.nbytes();
      const auto offset = static_cast<size_t>(data - arena.data());
      chunk.in_flight.push_back(std::move(grad));
      return {Area::kArena, offset};
    }
  }
  const auto offset = layout_.offsets[index];
  std::memcpy(staging_.writable->data() + layout_.num_bytes * static_cast<size_t>(rank_) + offset, data, grad.nbytes());
  return {Area::kStaging, offset};
}

const std::byte* HostParamGroup::address(int peer, size_t index, GradientPlace place) const {
  const auto& slice = items_[index].slice;
  const auto element = parameters_[index].full.element_size();
  const auto begin = place.offset + static_cast<size_t>(slice.begin) * element;
  const auto end = begin + static_cast<size_t>(slice.count) * element;
  const bool is_staged = place.area == Area::kStaging;
  const auto limit = is_staged ? layout_.num_bytes : arenas_.at(static_cast<size_t>(peer))->size();
  TORCH_CHECK(end <= limit, "rank ", peer, " says that a gradient lies where it has no memory");
  if (is_staged) return staging_.writable->data() + layout_.num_bytes * static_cast<size_t>(peer) + begin;
  return arenas_[static_cast<size_t>(peer)]->data() + begin;
}

void HostParamGroup::reduce(size_t number) {
  auto& chunk = chunks_[number];
  const at::NoGradGuard no_grad;
  std::vector<const void*> sources;
  for (const auto i : chunk.members) {
    sources.clear();
    for (int peer = 0; peer < world_size_; ++peer) {
      const auto place = board_->place(peer, i);
      if (place.area != Area::kNone) sources.push_back(address(peer, i, place));
    }
    if (sources.empty()) continue;  // nobody has used it
    auto& shard = parameters_[i].shard;
    auto sum = at::empty(shard.sizes(), shard.options().requires_grad(false));
    const std::vector<double> factors(sources.size(), 1.0 / divide_factor());
    const auto elements = comm::elements_of(sum);
    const auto kernel = shm::reduce_kernel(elements.dtype, shm::ReduceOp::kPremulSum);
    kernel(sum.mutable_data_ptr(), sources.data(), factors.data(), static_cast<int>(sources.size()), elements.count);
    note_sum(i, std::move(sum));
  }
  board_->note_read(number, pass());
  chunk.is_reduced = true;
}

double HostParamGroup::divide_factor() const {
  const int num_replicas = replica_group_ ? replica_group_->getSize() : 1;
  return settings_.gradient_divide_factor.value_or(world_size_ * num_replicas);
}

void HostParamGroup::note_sum(size_t index, at::Tensor sum) {
  if (!replica_group_) {
    give(index, std::move(sum));
    return;
  }
  auto& kept = items_[index].sum;
  kept = kept.defined() ? kept.add_(sum) : std::move(sum);
}

void HostParamGroup::reduce_over_replicas() {
  if (!replica_group_ || !settings_.requires_all_reduce) return;
  const at::NoGradGuard no_grad;
  std::vector<ReplicaSum> sums;
  for (const auto& chunk : chunks_) {
    std::vector<ReplicaSum::Part> parts;
    for (const auto i : chunk.members) {
      if (items_[i].requires_grad) parts.push_back({i, parameters_[i].shard, std::exchange(items_[i].sum, {})});
    }
    for (auto& of_dtype : by_dtype(std::move(parts))) sums.emplace_back(std::move(of_dtype), replica_group_);
  }
  for (auto& sum : sums) {
    sum.wait([&](size_t index, at::Tensor part) { give(index, std::move(part)); });
  }
}

void HostParamGroup::give(size_t index, at::Tensor sum) {
  auto& item = items_[index];
  auto& grad = parameters_[index].shard.mutable_grad();
  if (grad.defined()) {
    item.num_untouched = grad._version() == item.grad_version ? item.num_untouched + 1 : 0;
    if (item.num_untouched == kManyPasses) warn_of_idle_optimizer();
    grad.add_(sum);
  } else {
    item.num_untouched = 0;
    grad = std::move(sum);
  }
  item.grad_version = static_cast<uint32_t>(grad._version());
}

void HostParamGroup::poll() {
  if (num_unfinished_ == 0) return;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].is_posted && !chunks_[i].is_reduced && board_->have_all_posted(i, pass())) reduce(i);
  }
  release_read();
}

void HostParamGroup::release_read() {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    auto& chunk = chunks_[i];
    if (chunk.in_flight.empty() || !chunk.is_reduced || !board_->have_all_read(i, pass())) continue;
    num_bytes_in_flight_ -= std::exchange(chunk.num_bytes_in_flight, 0);
    chunk.in_flight.clear();
  }
}

void HostParamGroup::bound_memory() {
  if (num_bytes_in_flight_ <= window_bytes_) return;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (num_bytes_in_flight_ > window_bytes_ && std::chrono::steady_clock::now() < end) {
    sched_yield();
    poll();
  }
}

void HostParamGroup::end_backward() {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (!chunks_[i].is_posted) post(i);
  }
  poll();
}

void HostParamGroup::reduce_rest() {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (!chunks_[i].is_reduced) reduce(i);
  }
  release_read();
  ++num_passes_;
  num_unfinished_ = 0;
  begin_pass();
  reduce_over_replicas();
}

void HostParamGroup::forget_gradients() {
  num_bytes_in_flight_ = 0;
  for (auto& chunk : chunks_) {
    chunk.num_bytes_in_flight = 0;
    chunk.in_flight.clear();
  }
}

void HostParamGroup::reset() {
  ++num_passes_;
  num_unfinished_ = 0;
  for (const auto& parameter : parameters_) parameter.full.mutable_grad().reset();
  for (auto& item : items_) item.sum.reset();
  begin_pass();
}

void HostParamGroup::write(const Writer* write) {
  if (rank_ != 0 || (!write && !replica_group_)) return;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& full = parameters_[i].full;
    const auto whole =
        tensor_in(memory_.writable->data() + layout_.offsets[i], full.sizes(), memory_.writable, full.scalar_type());
    if (write) (*write)(parameters_[i].name, whole);
    if (replica_group_) broadcast(whole, group_rank(0), {.group = replica_group_});
    torch::autograd::impl::bump_version(full);
  }
}

}  // namespace cohort::fsdp
