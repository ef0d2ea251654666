#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/optim/lbfgs.h>

#include <map>
#include <typeinfo>

#include "cohort/base/log/log.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/group/group_backend.h"
#include "cohort/parallel/zero/optimizer_parts.h"
#include "cohort/parallel/zero/partition.h"
#include "cohort/parallel/zero/purpose.h"
#include "cohort/parallel/zero/shared_parameters.h"

namespace cohort {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;
using ParamList = std::vector<at::Tensor>;

ParamList params_of(const zero::ParamGroups& groups) {
  ParamList all;
  for (const auto& group : groups) all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

// Returns the optimizer with its own defaults, and the groups' options as it completes them. Makes no state.
std::unique_ptr<Optimizer> without_parameters(const ZeroRedundancyOptimizer::MakeOptimizer& make_optimizer,
                                              const zero::ParamGroups& param_groups) {
  TORCH_CHECK_VALUE(!params_of(param_groups).empty(), "ZeroRedundancyOptimizer got an empty parameter list");
  zero::ParamGroups empty;
  for (const auto& group : param_groups) empty.push_back(zero::with_params(group, {}));
  return make_optimizer(std::move(empty));
}

Group group_of_members(const Group& group) {
  auto result = group ? group : default_group();
  TORCH_CHECK_VALUE(is_member(result),
                    "[cohort] ZeroRedundancyOptimizer: this rank is not a member of the process group");
  return result;
}

bool runs_in_caller(const Group& group, const c10::Device& device) {
  return comm::capability_of(group, device.type()).runs_in_caller;
}

class ZeroJoinHook final : public JoinHook {
 public:
  explicit ZeroJoinHook(std::function<void()> step) : step_(std::move(step)) {}
  void main_hook() override { step_(); }

 private:
  std::function<void()> step_;
};

}  // namespace

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(const ParamGroups& param_groups, const MakeOptimizer& make_optimizer,
                                                 const ZeroOptions& options)
    : ZeroRedundancyOptimizer(without_parameters(make_optimizer, param_groups), param_groups, make_optimizer, options) {
}

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(std::unique_ptr<Optimizer> blank, const ParamGroups& param_groups,
                                                 MakeOptimizer make_optimizer, const ZeroOptions& options)
    : Optimizer(ParamGroups(), blank->defaults().clone()),
      make_optimizer_(std::move(make_optimizer)),
      group_(group_of_members(options.process_group)),
      rank_(group_->getRank()),
      world_size_(group_->getSize()),
      parameters_as_bucket_view_(options.parameters_as_bucket_view && !options.overlap_with_ddp),
      overlap_with_ddp_(options.overlap_with_ddp),
      device_(params_of(param_groups).front().device()) {
  TORCH_CHECK_VALUE(
      !options.one_memory || !overlap_with_ddp_,
      "[cohort] ZeroRedundancyOptimizer: one_memory cannot be combined with overlap_with_ddp: owners would update "
      "parameters that backward passes of other ranks still read");
  TORCH_CHECK_VALUE(
      !dynamic_cast<const torch::optim::LBFGS*>(blank.get()),
      "[cohort] ZeroRedundancyOptimizer cannot partition LBFGS: its step depends on all parameters together");
  for (size_t i = 0; i < param_groups.size(); ++i) {
    check_params(param_groups[i].params());
    Optimizer::add_param_group({param_groups[i].params(), blank->param_groups()[i].options().clone()});
  }
  repartition();
  local_ = make_optimizer_(groups_of(rank_));
  if (overlap_with_ddp_ && options.parameters_as_bucket_view) {
    base::log_warning(
        "`parameters_as_bucket_view=True` will be ignored since `overlap_with_ddp=True`; instead, a different "
        "bucketing "
        "strategy will be used");
  }
  is_trainable_ = trainability();
  if (options.one_memory && world_size_ > 1 && zero::SharedParameters::are_possible(group_, device_)) {
    shared_ = std::make_unique<zero::SharedParameters>(group_);
    parameters_as_bucket_view_ = false;
  }
  share_parameters();
  build_param_buckets();
}

ZeroRedundancyOptimizer::~ZeroRedundancyOptimizer() = default;

// Called before `params` join the others.
void ZeroRedundancyOptimizer::check_params(const ParamList& params) const {
  auto all = params_of(param_groups_);
  all.insert(all.end(), params.begin(), params.end());
  std::unordered_map<const void*, size_t> seen;
  for (size_t i = 0; i < all.size(); ++i) {
    TORCH_CHECK_VALUE(seen.emplace(all[i].unsafeGetTensorImpl(), i).second,
                      "some parameters appear in more than one parameter group");
    const auto name = zero::typename_of(all[i]);
    const auto first = zero::typename_of(all.front());
    TORCH_CHECK_VALUE(!all.front().is_sparse(),
                      "ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got ",
                      first);
    TORCH_CHECK_VALUE(
        name == first,
        "ZeroRedundancyOptimizer only supports using the same dense type for all parameters but got both ", first,
        " and ", name);
  }
}

void ZeroRedundancyOptimizer::add_param_group(const OptimizerParamGroup& param_group) {
  adopt_groups();
  check_params(param_group.params());
  Optimizer::add_param_group(param_group);
  adopt_groups();
}

// Adopts groups added since, possibly through the base class, whose functions are not virtual.
void ZeroRedundancyOptimizer::adopt_groups() {
  const size_t num_known = local_->param_groups().size();
  size_t num_params = 0;
  for (size_t i = 0; i < num_known; ++i) num_params += param_groups_[i].params().size();
  TORCH_CHECK_VALUE(num_params == places_.size(),
                    "[cohort] ZeroRedundancyOptimizer: the parameters of a group have changed since it was partitioned "
                    "among the ranks. Add parameters with add_param_group.");
  if (num_known == param_groups_.size()) return;
  check_params({});
  repartition();
  const auto own = groups_of(rank_);
  for (size_t i = num_known; i < own.size(); ++i) local_->add_param_group(own[i]);
  is_trainable_ = trainability();
  share_parameters();
  build_param_buckets();
  full_.reset();
}

void ZeroRedundancyOptimizer::repartition() {
  std::vector<std::vector<int64_t>> sizes;
  for (const auto& group : param_groups_) {
    sizes.emplace_back();
    for (const auto& param : group.params()) sizes.back().push_back(param.numel());
  }
  const auto partition = zero::partition_by_size(sizes, world_size_);
  partition_.assign(world_size_, std::vector<ParamList>(param_groups_.size()));
  places_.clear();
  for (int rank = 0; rank < world_size_; ++rank) {
    for (size_t group = 0; group < param_groups_.size(); ++group) {
      for (const size_t place : partition[rank][group]) {
        const auto& param = param_groups_[group].params()[place];
        partition_[rank][group].push_back(param);
        places_[param.unsafeGetTensorImpl()] = {rank, group};
      }
    }
  }
}

zero::ParamGroups ZeroRedundancyOptimizer::groups_of(int rank) const {
  zero::ParamGroups groups;
  for (size_t i = 0; i < param_groups_.size(); ++i) {
    groups.push_back(zero::with_params(param_groups_[i], partition_[rank][i]));
  }
  return groups;
}

std::vector<bool> ZeroRedundancyOptimizer::trainability() const {
  std::vector<bool> result;
  for (const auto& param : params_of(param_groups_)) result.push_back(param.requires_grad());
  return result;
}

void ZeroRedundancyOptimizer::rebuild_after_trainability_changed() {
  auto now = trainability();
  if (now == is_trainable_) return;
  TORCH_CHECK(
      !overlap_with_ddp_,
      "ZeroRedundancyOptimizer with `overlap_with_ddp=True` does not support changing parameter trainability at run "
      "time");
  base::log_warning(
      "ZeroRedundancyOptimizer detected that the trainable parameters changed; rebuilding the parameter buckets if "
      "enabled");
  is_trainable_ = std::move(now);
  build_param_buckets();
}

void ZeroRedundancyOptimizer::share_parameters() {
  if (!shared_) return;
  shared_->add(params_of(param_groups_),
               [this](const at::Tensor& param) { return places_.at(param.unsafeGetTensorImpl()).owner; });
}

// A frozen parameter may be in a bucket that is about to be freed.
void ZeroRedundancyOptimizer::build_param_buckets() {
  if (!parameters_as_bucket_view_) return;
  const at::NoGradGuard no_grad;
  const bool is_first = buckets_.empty();
  buckets_.assign(world_size_, {});
  for (int rank = 0; rank < world_size_; ++rank) {
    std::map<c10::DeviceIndex, ParamList> by_device;
    for (const auto& params : partition_[rank]) {
      for (const auto& param : params) {
        if (param.requires_grad() && param.numel() > 0) {
          by_device[param.device().index()].push_back(param);
        } else if (!is_first) {
          param.set_data(param.detach().clone());
        }
      }
    }
    for (const auto& [index, params] : by_device) buckets_[rank].push_back(zero::flatten_params(params, group_));
  }
}

at::Tensor ZeroRedundancyOptimizer::step(LossClosure closure) {
  if (overlap_with_ddp_) {
    base::log_warning("`step()` should not be included in the training loop when `overlap_with_ddp=True`");
    return {};
  }
  const auto announcement = Join::notify_join_context(*this);
  auto loss = step_and_sync(std::move(closure));
  if (announcement) announcement->wait();
  return loss;
}

at::Tensor ZeroRedundancyOptimizer::step_and_sync(LossClosure closure) {
  adopt_groups();
  rebuild_after_trainability_changed();
  if (shared_) return step_in_one_memory(closure);
  at::Tensor loss;
  {
    const zero::SwappedOptions swapped(param_groups_, local_->param_groups());
    loss = local_->step(std::move(closure));
  }
  sync_params();
  return loss;
}

// The closure's passes read all parameters: no owner may write before the passes of all ranks have ended.
at::Tensor ZeroRedundancyOptimizer::step_in_one_memory(const LossClosure& closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  shared_->meet();
  {
    const zero::SwappedOptions swapped(param_groups_, local_->param_groups());
    local_->step();
  }
  shared_->meet();
  return loss;
}

void ZeroRedundancyOptimizer::sync_params() {
  if (world_size_ == 1) return;
  const comm::CalledFor purpose(zero::kParameterExchange);
  const CollectiveOptions options{.group = group_, .async_op = !runs_in_caller(group_, device_)};
  std::vector<WorkPtr> works;
  const auto send = [&](const at::Tensor& tensor, int rank) {
    works.push_back(broadcast(tensor, group_rank(rank), options));
  };
  for (int rank = 0; rank < world_size_; ++rank) {
    if (parameters_as_bucket_view_) {
      for (const auto& bucket : buckets_[rank]) send(bucket, rank);
      continue;
    }
    for (const auto& params : partition_[rank]) {
      for (const auto& param : params) send(param.variable_data(), rank);
    }
  }
  for (const auto& work : works) work->wait();
}

void ZeroRedundancyOptimizer::step_part(const ParamList& params, ParamList gradients) {
  // Exchanges things for a part of the step, and exchanges them back.
  struct Exchanged {
    zero::ParamGroups& groups;
    std::vector<ParamList> parts;
    const ParamList& params;
    ParamList& gradients;

    void exchange() {
      for (size_t i = 0; i < parts.size(); ++i) std::swap(groups[i].params(), parts[i]);
      for (size_t i = 0; i < params.size(); ++i) std::swap(params[i].mutable_grad(), gradients[i]);
    }
    ~Exchanged() { exchange(); }
  };
  const zero::SwappedOptions swapped(param_groups_, local_->param_groups());
  Exchanged part{local_->param_groups(), std::vector<ParamList>(param_groups_.size()), params, gradients};
  for (const auto& param : params) part.parts[places_.at(param.unsafeGetTensorImpl()).group].push_back(param);
  part.exchange();
  local_->step();
}

void ZeroRedundancyOptimizer::consolidate_state_dict(int to) {
  adopt_groups();
  full_.reset();
  auto parts = gather_bytes(zero::bytes_of(*local_), to);
  if (rank_ != to) return;
  auto full = full_optimizer();
  for (int rank = 0; rank < world_size_; ++rank) {
    const auto part = make_optimizer_(groups_of(rank));
    zero::load_bytes(*part, std::exchange(parts[rank], {}), c10::kCPU);
    zero::move_state(*part, *full);
  }
  full_ = std::move(full);
}

std::vector<std::string> ZeroRedundancyOptimizer::gather_bytes(const std::string& own, int to) const {
  TORCH_CHECK_VALUE(to >= 0 && to < world_size_, "[cohort] consolidate_state_dict: rank ", to,
                    " is not one of the group's ", world_size_);
  BytesList parts(rank_ == to ? static_cast<size_t>(world_size_) : 0);
  gather_object(own, rank_ == to ? &parts : nullptr, group_rank(to), {.group = group_});
  return parts;
}

std::unique_ptr<Optimizer> ZeroRedundancyOptimizer::full_optimizer() const {
  auto full = make_optimizer_(param_groups_);
  full->state().clear();
  return full;
}

Optimizer& ZeroRedundancyOptimizer::state_dict() const {
  TORCH_CHECK(full_,
              "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to=", rank_,
              ")` on all ranks beforehand if you meant to save the global state.");
  for (size_t i = 0; i < full_->param_groups().size(); ++i) {
    full_->param_groups()[i].set_options(param_groups_[i].options().clone());
  }
  return *full_;
}

void ZeroRedundancyOptimizer::load_state_dict(const Optimizer& full) {
  adopt_groups();
  const Optimizer& part_here = *local_;
  TORCH_CHECK_TYPE(typeid(full) == typeid(part_here),
                   "[cohort] load_state_dict takes an optimizer of the wrapped kind over all parameters, such as "
                   "state_dict() or full_optimizer() returns");
  const auto& theirs = full.param_groups();
  TORCH_CHECK_VALUE(theirs.size() == param_groups_.size(),
                    "loaded state dict has a different number of parameter groups");
  for (size_t i = 0; i < theirs.size(); ++i) {
    TORCH_CHECK_VALUE(theirs[i].params().size() == param_groups_[i].params().size(),
                      "loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
  }
  const auto part = make_optimizer_(groups_of(rank_));
  part->state().clear();
  for (size_t i = 0; i < theirs.size(); ++i) {
    part->param_groups()[i].set_options(theirs[i].options().clone());
    for (size_t j = 0; j < theirs[i].params().size(); ++j) {
      const auto* own = param_groups_[i].params()[j].unsafeGetTensorImpl();
      const auto found = full.state().find(theirs[i].params()[j].unsafeGetTensorImpl());
      if (found == full.state().end() || places_.at(own).owner != rank_) continue;
      part->state()[const_cast<c10::TensorImpl*>(own)] = found->second->clone();
    }
  }
  const auto bytes = zero::bytes_of(*part);
  local_->state().clear();
  const zero::SwappedOptions swapped(param_groups_, local_->param_groups());
  zero::load_bytes(*local_, bytes, device_);
}

void ZeroRedundancyOptimizer::save(torch::serialize::OutputArchive& archive) const { state_dict().save(archive); }

void ZeroRedundancyOptimizer::load(torch::serialize::InputArchive& archive) {
  const auto full = full_optimizer();
  full->load(archive);
  load_state_dict(*full);
}

std::unique_ptr<JoinHook> ZeroRedundancyOptimizer::join_hook(const JoinOptions&) {
  return std::make_unique<ZeroJoinHook>([this] {
    if (!overlap_with_ddp_) step_and_sync(nullptr);
  });
}

}  // namespace cohort
