#include "cohort/parallel/fsdp/sharding.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/collectives/shm_empty.h"
#include "cohort/comm/watch/unwrapped_training.h"
#include "cohort/parallel/fsdp/host_param_group.h"
#include "cohort/parallel/fsdp/root_pass.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::fsdp {
namespace {

bool is_ignored(const at::Tensor& tensor, const std::vector<at::Tensor>& ignored) {
  return std::any_of(ignored.begin(), ignored.end(), [&](const at::Tensor& other) { return other.is_same(tensor); });
}

// Each once, without those to be ignored.
std::vector<NamedParameter> managed(const std::vector<NamedParameter>& parameters, const Options& options) {
  std::vector<NamedParameter> result;
  for (const auto& parameter : parameters) {
    const auto is_known = [&](const NamedParameter& other) { return other.tensor.is_same(parameter.tensor); };
    if (is_ignored(parameter.tensor, options.ignored_params)) continue;
    if (std::none_of(result.begin(), result.end(), is_known)) result.push_back(parameter);
  }
  return result;
}

void check(const NamedParameter& parameter) {
  const auto& tensor = parameter.tensor;
  TORCH_CHECK_VALUE(tensor.dim() > 0, "fully_shard doesn't support scalar parameters. Change ", parameter.name,
                    " to a 1D tensor with numel equal to 1.");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided && tensor.is_contiguous(),
                              "FSDP does not support non-contiguous parameters yet: ", parameter.name,
                              ".shape=", tensor.sizes(), " ", parameter.name, ".stride()=", tensor.strides());
  TORCH_CHECK_VALUE(tensor.is_cpu() || tensor.is_meta(), "Parameter '", parameter.name, "' is on ", tensor.device(),
                    ", but fully_shard needs it on the CPU, whose memory the ranks share");
  TORCH_CHECK_VALUE(!parallel::is_sharded(tensor), "Parameter '", parameter.name,
                    "' is shared with a parameter already managed by another FSDP group. For shared/tied parameters, "
                    "shard the modules that share it by one call, in the same FSDP group.");
}

Group group_of(const Options& options) {
  if (!options.mesh) return options.process_group ? options.process_group : default_group();
  const auto& mesh = *options.mesh;
  TORCH_CHECK_VALUE(!options.process_group, "fully_shard takes a mesh or a process group, not both");
  TORCH_CHECK_VALUE(mesh.ndim() == 1 || mesh.ndim() == 2, "fully_shard expects a 1D or 2D DeviceMesh but got ",
                    mesh.to_string());
  TORCH_CHECK_NOT_IMPLEMENTED(mesh.ndim() == 1,
                              "fully_shard on a mesh of two dimensions (HSDP) is not implemented yet; give it a "
                              "mesh of one, such as mesh[\"dp_shard\"]");
  return mesh.group(0);
}

std::string describe_parameter(const NamedParameter& parameter) {
  return fmt::format("{} {} [{}]{}", parameter.name, c10::toString(parameter.tensor.scalar_type()),
                     fmt::join(parameter.tensor.sizes().vec(), ", "),
                     parameter.tensor.requires_grad() ? "" : " frozen");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (auto end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
    lines.push_back(text.substr(begin, end - begin));
  }
  return lines;
}

// Every rank finds the same first difference.
void check_equal_on_all_ranks(const std::vector<NamedParameter>& parameters, const Group& group) {
  if (group->getSize() == 1) return;
  std::string own;
  for (const auto& parameter : parameters) own += describe_parameter(parameter) + "\n";
  std::vector<c10::IValue> all(static_cast<size_t>(group->getSize()));
  all_gather_object(all, c10::IValue(own), {.group = group});
  const auto first = lines_of(all.front().toStringRef());
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const auto lines = lines_of(all[rank].toStringRef());
    for (size_t i = 0; i < std::max(lines.size(), first.size()); ++i) {
      const auto ours = i < first.size() ? first[i] : "nothing";
      const auto theirs = i < lines.size() ? lines[i] : "nothing";
      TORCH_CHECK(ours == theirs, "fully_shard: the ranks' parameters differ: parameter ", i, " is ", ours,
                  " on rank 0, but ", theirs, " on rank ", rank);
    }
  }
}

}  // namespace

Sharding::Sharding(std::vector<NamedParameter> parameters, const Options& options,
                   std::function<std::vector<Sharding*>()> find_nested)
    : process_group_(group_of(options)), find_nested_(std::move(find_nested)) {
  const auto kept = managed(parameters, options);
  TORCH_CHECK_VALUE(
      comm::has_shared_memory(process_group_),
      "fully_shard needs a group whose ranks share memory, as those of backend \"shm\" do, but this group's "
      "backend is \"",
      get_backend(process_group_), "\"");
  for (const auto& parameter : kept) check(parameter);
  check_equal_on_all_ranks(kept, process_group_);
  group_ = std::make_unique<HostParamGroup>(kept, process_group_);
  comm::gradients_are_exchanged();
  for (const auto& parameter : group_->parameters()) {
    parallel::note_sharded(parameter.full, process_group_);
    parallel::note_sharded(parameter.shard, process_group_);
  }
  barrier({.group = process_group_});  // from now on everyone reads all of it
}

Sharding::~Sharding() {
  if (root_) root_->remove(*group_);
  for (const auto& parameter : group_->parameters()) {
    parallel::forget_sharded(parameter.full);
    parallel::forget_sharded(parameter.shard);
  }
}

void Sharding::join_root() {
  if (root_) return;
  auto root = std::make_shared<RootPass>(process_group_);
  const auto nested = find_nested_ ? find_nested_() : std::vector<Sharding*>();
  for (auto* const other : nested) {
    TORCH_CHECK(
        !other->root_,
        "FSDP state has already been lazily initialized for a nested module\nFSDP requires running forward through "
        "the root module first");
  }
  for (auto* const other : nested) {
    other->root_ = root;
    root->add(*other->group_);
  }
  root_ = std::move(root);
  root_->add(*group_);
}

Sharding::Forward::Forward(Sharding& sharding) : sharding_(sharding) {
  sharding_.join_root();
  sharding_.root_->begin_forward();
  try {
    sharding_.group_->before_forward();
  } catch (...) {
    sharding_.root_->end_forward();
    throw;
  }
}

Sharding::Forward::~Forward() { sharding_.root_->end_forward(); }

std::vector<at::Tensor> Sharding::parameters() const {
  std::vector<at::Tensor> shards;
  for (const auto& parameter : group_->parameters()) shards.push_back(parameter.shard);
  return shards;
}

const std::vector<ShardedParameter>& Sharding::sharded_parameters() const { return group_->parameters(); }

void Sharding::set_requires_gradient_sync(bool value) { group_->set_requires_gradient_sync(value); }

bool Sharding::requires_gradient_sync() const { return group_->requires_gradient_sync(); }

void Sharding::set_gradient_divide_factor(double factor) {
  TORCH_CHECK_VALUE(factor > 0, "the gradient divide factor must be positive, got ", factor);
  group_->set_gradient_divide_factor(factor);
}

void Sharding::write(const Writer& writer) {
  const bool is_writer = process_group_->getRank() == 0;
  barrier({.group = process_group_});
  std::string failure;
  if (is_writer) {
    try {
      group_->write(writer);
    } catch (const std::exception& error) {
      failure = error.what();
      if (failure.empty()) failure = "an exception without a text";
    }
  }
  std::vector<c10::IValue> texts(static_cast<size_t>(process_group_->getSize()));
  all_gather_object(texts, c10::IValue(failure), {.group = process_group_});  // and everybody waits for the writer
  TORCH_CHECK(texts.front().toStringRef().empty(),
              "write() failed on rank 0 of the group: ", texts.front().toStringRef());
}

}  // namespace cohort::fsdp
