#include "cohort/parallel/fsdp/host/host_param_group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <sched.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <utility>

#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/collectives/common_memory.h"
#include "cohort/comm/shm/element_types.h"
#include "cohort/comm/tensors/plain_tensor.h"
#include "cohort/parallel/fsdp/host/replica_sum.h"
#include "cohort/parallel/fsdp/tensors/absent_gradients.h"
#include "cohort/shm/kernels/kernels.h"

namespace cohort::fsdp {
namespace {

using Area = GradientPlace::Area;

// How long backward waits for ranks that have not read this rank's gradients. Then its memory grows instead: a lost rank is
// noticed at the end of backward.
constexpr auto kPatience = std::chrono::milliseconds(20);
constexpr auto kLongPatience = std::chrono::seconds(1);
constexpr size_t kLeastWindowBytes = size_t{16} << 20;

using DtypeOf = std::function<c10::ScalarType(const at::Tensor&)>;

std::vector<size_t> bytes_of(const std::vector<NamedParameter>& parameters, const DtypeOf& dtype_of) {
  std::vector<size_t> bytes;
  for (const auto& [name, tensor] : parameters) {
    bytes.push_back(static_cast<size_t>(own_shard(tensor).numel()) * c10::elementSize(dtype_of(tensor)));
  }
  return bytes;
}

c10::ScalarType own_dtype(const at::Tensor& tensor) { return tensor.scalar_type(); }

c10::ScalarType compute_dtype(const at::Tensor& tensor, const MixedPrecisionPolicy& policy) {
  return tensor.is_floating_point() ? policy.param_dtype.value_or(own_dtype(tensor)) : own_dtype(tensor);
}

// Threads may be ranks, too.
int64_t next_number(const Group& group) {
  static std::atomic<int64_t> last = 0;
  const auto number = at::full({1}, ++last, at::kLong);
  broadcast(number, group_rank(0), {.group = group});
  return number.item<int64_t>();
}

template <class Memory>
at::Tensor tensor_in(std::byte* data, at::IntArrayRef sizes, Memory owner, at::ScalarType dtype) {
  return at::from_blob(
      data, sizes, [owner = std::move(owner)](void*) {}, at::TensorOptions(dtype));
}

}  // namespace

HostParamGroup::HostParamGroup(const std::vector<NamedParameter>& parameters, const Group& group,
                               const Group& replica_group, const MixedPrecisionPolicy& policy)
    : group_(group),
      replica_group_(replica_group),
      rank_(group->getRank()),
      world_size_(group->getSize()),
      number_(next_number(group)),
      arenas_(comm::arenas_of(group)) {
  const DtypeOf in_forward = [&](const at::Tensor& tensor) { return compute_dtype(tensor, policy); };
  const DtypeOf in_sums = [&](const at::Tensor& tensor) {
    return tensor.is_floating_point() ? policy.reduce_dtype.value_or(in_forward(tensor)) : in_forward(tensor);
  };
  const auto bytes = bytes_of(parameters, own_dtype);
  const auto read_bytes = bytes_of(parameters, in_forward);
  const auto grad_bytes = bytes_of(parameters, in_sums);
  layout_ = lay_out(bytes);
  read_layout_ = lay_out(read_bytes);
  grad_layout_ = lay_out(grad_bytes);
  memory_ = comm::make_common_memory(layout_.num_bytes, /*has_pages=*/true, group);
  const bool is_mixed = std::any_of(parameters.begin(), parameters.end(), [&](const NamedParameter& parameter) {
    return in_forward(parameter.tensor) != own_dtype(parameter.tensor);
  });
  read_memory_ = is_mixed ? comm::make_common_memory(read_layout_.num_bytes, true, group) : memory_;
  if (!is_mixed) read_layout_ = layout_;
  const auto num_staged = grad_layout_.num_bytes * static_cast<size_t>(world_size_);
  staging_ = comm::make_common_memory(num_staged, /*has_pages=*/false, group);
  const ProgressTable::Size size{world_size_, split_into_chunks(grad_bytes).size(), parameters.size()};
  progress_ =
      std::make_unique<ProgressTable>(comm::make_common_memory(size.num_bytes(), true, group).writable, rank_, size);
  items_.resize(parameters.size());
  for (auto& members : split_into_chunks(grad_bytes)) {
    size_t chunk_bytes = 0;
    for (const auto i : members) {
      items_[i].chunk = chunks_.size();
      chunk_bytes += grad_bytes[i];
    }
    window_bytes_ = std::max(window_bytes_, 2 * chunk_bytes);
    chunks_.push_back({.members = std::move(members)});
  }
  window_bytes_ = std::max(window_bytes_, kLeastWindowBytes);
  std::vector<WriteGuard::Range> ranges;
  for (size_t i = 0; i < items_.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    parameters_.push_back({name, tensor, {}, 0});
    items_[i].grad_dtype = in_sums(tensor);
    share(i, in_forward(tensor));
    ranges.push_back({read_memory_.readable->data() + read_layout_.offsets[i], read_bytes[i], name});
    ranges.push_back({memory_.writable->data() + layout_.offsets[i], bytes[i], name});
  }
  guard_ = std::make_unique<WriteGuard>(ranges);
  begin_pass();
}

HostParamGroup::~HostParamGroup() {
  if (!memory_.readable->is_here()) return;  // in a forked child nobody reads anything
  const auto end = std::chrono::steady_clock::now() + kLongPatience;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    auto& in_flight = chunks_[i].in_flight;
    while (!in_flight.empty() && !progress_->have_all_read(i, num_passes_) && std::chrono::steady_clock::now() < end) {
      sched_yield();
    }
    if (in_flight.empty() || progress_->have_all_read(i, num_passes_)) continue;
    // Leaks the memory rather than giving it to another tensor while somebody reads it.
    new (std::nothrow) std::vector<at::Tensor>(std::move(in_flight));
  }
}

// The module's tensor keeps its identity. Its private memory is freed at once, so that a rank never has two full models.
void HostParamGroup::share(size_t index, c10::ScalarType dtype) {
  auto& parameter = parameters_[index];
  auto& item = items_[index];
  const at::NoGradGuard no_grad;
  const auto values = own_shard(parameter.full).detach();
  const auto sizes = values.sizes().vec();
  item.slice = slice_of(sizes, rank_, world_size_);
  parameter.offset = item.slice.begin;
  const auto own_sizes = shard_sizes(sizes, rank_, world_size_);
  auto* const begin = memory_.writable->data() + layout_.offsets[index];
  const auto first = static_cast<size_t>(item.slice.begin);
  parameter.shard = tensor_in(begin + first * values.element_size(), own_sizes, memory_.writable, values.scalar_type());
  if (dtype != values.scalar_type()) {
    auto* const copy = read_memory_.writable->data() + read_layout_.offsets[index];
    item.copy = tensor_in(copy + first * c10::elementSize(dtype), own_sizes, read_memory_.writable, dtype);
    if (auto* const meta = torch::autograd::impl::get_autograd_meta(parameter.full)) {
      meta->grad_accumulator_.reset();  // it stores a dtype
    }
  }
  if (!values.is_meta()) {
    parameter.shard.view({-1}).copy_(values.view({-1}).narrow(0, item.slice.begin, item.slice.count));
  }
  if (item.copy.defined()) item.copy.copy_(parameter.shard);
  auto* const readable = const_cast<std::byte*>(read_memory_.readable->data()) + read_layout_.offsets[index];
  const auto unsharded = tensor_in(readable, sizes, read_memory_.readable, dtype);
  put_own_shard(parameter.full, unsharded);
  // Makes a step count as a write to the full parameter, so that backward of an older forward notices it.
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
  bool has_changed = false;
  for (size_t i = 0; i < items_.size(); ++i) {
    const auto& [name, full, shard, offset, dim, spec, part] = parameters_[i];
    const auto& own = own_shard(full);
    const auto* const data = static_cast<const std::byte*>(own.unsafeGetTensorImpl()->storage().data());
    TORCH_CHECK(
        own.numel() == 0 || data == read_memory_.readable->data() + read_layout_.offsets[i], "[cohort] Parameter '",
        name,
        "' is no longer where fully_shard has put it: to(), set_data() or a new tensor in its place has moved it. "
        "Convert a module before fully_shard, and write to its parameters with write().");
    const bool before = items_[i].requires_grad;
    if (full.requires_grad() == before && shard.requires_grad() == before) continue;
    if (full.requires_grad() == before) full.set_requires_grad(shard.requires_grad());
    follow_requires_grad(i);
    has_changed = true;
  }
  if (has_changed && num_unfinished_ == 0) begin_pass();  // otherwise other gradients are still awaited
}

void HostParamGroup::refresh() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (items_[i].copy.defined()) items_[i].copy.copy_(parameters_[i].shard);
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

// The first forward pass decides which wrapper is the root, and the root ends the pass.
void HostParamGroup::check_is_in_pass(size_t index) const {
  TORCH_CHECK(on_gradient_, "[cohort] fully_shard: parameter '", parameters_[index].name,
              "' has a gradient, but no forward pass of the wrapper has run: the backward pass belongs to a forward "
              "pass of the module inside\n  hint: call the wrapper instead: model(x) or model->forward(x)");
}

void HostParamGroup::on_gradient(size_t index) {
  check_is_in_pass(index);
  on_gradient_();
  auto& item = items_[index];
  if (!settings_.requires_gradient_sync) {
    if (item.grad_dtype != parameters_[index].full.scalar_type()) item.accumulated = take_gradient(index);
    return;
  }
  auto& chunk = chunks_[item.chunk];
  TORCH_CHECK(!chunk.is_posted, "[cohort] Parameter '", parameters_[index].name,
              "' has a second gradient in one backward pass. Either it is used outside its wrapper's forward, or "
              "several reentrant backward passes use it, as with reentrant activation checkpointing: use checkpoint() "
              "with use_reentrant = false.");
  if (std::exchange(item.has_arrived, true) || chunk.num_pending == 0) return;
  if (--chunk.num_pending > 0) return;
  post(item.chunk);
  poll();
  bound_memory();
}

void HostParamGroup::post(size_t number) {
  auto& chunk = chunks_[number];
  for (const auto i : chunk.members) progress_->set_place(i, put(i, chunk));
  num_bytes_in_flight_ += chunk.num_bytes_in_flight;
  progress_->post(number, pass());
  chunk.is_posted = true;
  ++num_unfinished_;
}

// Adds gradients accumulated in earlier passes, in the dtype of sums.
at::Tensor HostParamGroup::take_gradient(size_t index) {
  const auto& parameter = parameters_[index];
  const at::NoGradGuard no_grad;
  auto grad = take_full_gradient(parameter.full);
  auto before = std::exchange(items_[index].accumulated, at::Tensor());
  if (!grad.defined()) return before;
  grad = own_gradient(grad, parameter);
  TORCH_CHECK(grad.layout() == at::kStrided,
              "[cohort] fully_shard does not support sparse gradients, but the gradient of '", parameter.name,
              "' is one");
  if (before.defined()) return before.add_(grad);
  return comm::as_plain(grad.detach().to(items_[index].grad_dtype));
}

GradientPlace HostParamGroup::put(size_t index, Chunk& chunk) {
  auto grad = take_gradient(index);
  if (!grad.defined() || grad.numel() == 0) return {};
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
  const auto offset = grad_layout_.offsets[index];
  auto* const own_shard = staging_.writable->data() + grad_layout_.num_bytes * static_cast<size_t>(rank_);
  std::memcpy(own_shard + offset, data, grad.nbytes());
  items_[index].was_staged = true;
  return {Area::kStaging, offset};
}

const std::byte* HostParamGroup::address(int peer, size_t index, GradientPlace place) const {
  const auto& slice = items_[index].slice;
  const auto element = c10::elementSize(items_[index].grad_dtype);
  const auto begin = place.offset + static_cast<size_t>(slice.begin) * element;
  const auto end = begin + static_cast<size_t>(slice.count) * element;
  const bool is_staged = place.area == Area::kStaging;
  const auto limit = is_staged ? grad_layout_.num_bytes : arenas_.at(static_cast<size_t>(peer))->size();
  TORCH_CHECK(end <= limit, "[cohort] rank ", peer, " reports a gradient outside its memory");
  if (is_staged) return staging_.writable->data() + grad_layout_.num_bytes * static_cast<size_t>(peer) + begin;
  return arenas_[static_cast<size_t>(peer)]->data() + begin;
}

void HostParamGroup::reduce(size_t number) {
  auto& chunk = chunks_[number];
  const at::NoGradGuard no_grad;
  std::vector<const void*> sources;
  for (const auto i : chunk.members) {
    sources.clear();
    for (int peer = 0; peer < world_size_; ++peer) {
      const auto place = progress_->place(peer, i);
      if (place.area != Area::kNone) sources.push_back(address(peer, i, place));
    }
    auto& shard = parameters_[i].shard;
    if (sources.empty()) {  // no rank has used it
      const bool gets_zeros = settings_.reduce_scatter_unused_params && items_[i].requires_grad;
      if (gets_zeros) note_sum(i, at::zeros(shard.sizes(), at::TensorOptions(items_[i].grad_dtype)));
      continue;
    }
    auto sum = at::empty(shard.sizes(), at::TensorOptions(items_[i].grad_dtype));
    const std::vector<double> factors(sources.size(), 1.0 / divide_factor());
    const auto elements = comm::elements_of(sum);
    const auto kernel = shm::reduce_kernel(elements.dtype, shm::ReduceOp::kPremulSum);
    kernel(sum.mutable_data_ptr(), sources.data(), factors.data(), static_cast<int>(sources.size()), elements.count);
    note_sum(i, std::move(sum));
  }
  progress_->note_read(number, pass());
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
      if (items_[i].requires_grad)
        parts.push_back({i, parameters_[i].shard.sizes(), items_[i].grad_dtype, std::exchange(items_[i].sum, {})});
    }
    for (auto& of_dtype : by_dtype(std::move(parts))) sums.emplace_back(std::move(of_dtype), replica_group_);
  }
  for (auto& sum : sums) {
    sum.wait([&](size_t index, at::Tensor part) { give(index, std::move(part)); });
  }
}

void HostParamGroup::give(size_t index, at::Tensor sum) {
  sum = sum.to(parameters_[index].shard.scalar_type());
  auto& grad = parameters_[index].shard.mutable_grad();
  grad = grad.defined() ? grad.add_(sum) : std::move(sum);
  items_[index].has_new_grad = true;
}

void HostParamGroup::poll() {
  if (num_unfinished_ == 0) return;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].is_posted && !chunks_[i].is_reduced && progress_->have_all_posted(i, pass())) reduce(i);
  }
  release_read();
}

void HostParamGroup::release_read() {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    auto& chunk = chunks_[i];
    if (chunk.in_flight.empty() || !chunk.is_reduced || !progress_->have_all_read(i, pass())) continue;
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
  call_gradient_hooks();
}

// Called only now: a hook may write the shard, which another rank's backward pass may have been reading until now.
void HostParamGroup::call_gradient_hooks() {
  for (size_t i = 0; i < items_.size(); ++i) {
    if (!std::exchange(items_[i].has_new_grad, false)) continue;
    const auto& shard = parameters_[i].shard;
    if (const auto& hook = torch::autograd::impl::post_acc_grad_hooks(shard)) (*hook)(shard);
  }
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
  for (auto& item : items_) {
    item.sum.reset();
    item.accumulated.reset();
  }
  begin_pass();
}

GroupMemory HostParamGroup::memory() const {
  GroupMemory memory{.num_in_flight_bytes = num_bytes_in_flight_};
  for (size_t i = 0; i < items_.size(); ++i) {
    const auto& item = items_[i];
    const auto& full = parameters_[i].full;
    const auto unsharded = full_gradient(full);
    const auto gradient = unsharded.defined() ? own_shard(unsharded) : at::Tensor();
    memory.parameters.push_back({bytes_in({item.copy}), bytes_in({gradient, item.accumulated, item.sum})});
    if (item.was_staged) memory.num_staging_bytes += own_shard(full).numel() * c10::elementSize(item.grad_dtype);
  }
  return memory;
}

void HostParamGroup::write(const Writer* write) {
  for (const auto& parameter : parameters_) torch::autograd::impl::bump_version(parameter.full);
  if (rank_ != 0 || (!write && !replica_group_)) return;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, full, shard, begin, dim, spec, part] = parameters_[i];
    const auto unsharded = tensor_in(memory_.writable->data() + layout_.offsets[i], own_shard(full).sizes(),
                                     memory_.writable, shard.scalar_type());
    if (write) (*write)(name, unsharded);
    if (replica_group_) broadcast(unsharded, group_rank(0), {.group = replica_group_});
  }
}

}  // namespace cohort::fsdp
