#include "cohort/parallel/fsdp/optimizer_state.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <memory>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cohort/comm/agreement/agreement.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/comm/collectives/collectives.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/comm/pickle/pickle.h"
#include "cohort/parallel/fsdp/optimizer_fields.h"
#include "cohort/parallel/fsdp/tensors/shard_rows.h"
#include "cohort/parallel/module/purpose.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::fsdp {
namespace {

using torch::optim::Optimizer;

constexpr int64_t kNoState = -1;  // otherwise a bit for each tensor that there is

struct ParameterPlace {
  size_t group = 0;
  size_t index = 0;
  at::Tensor parameter;
  std::optional<int64_t> dim;  // the dimension along which it is sharded; absent if it is not sharded
};

std::string describe_place(const ParameterPlace& place) {
  return c10::str("parameter ", place.index, " of group ", place.group);
}

std::vector<ParameterPlace> places_of(const Optimizer& optimizer, const std::vector<ShardedParameter>& sharded = {}) {
  std::unordered_map<const void*, int64_t> dims;
  for (const auto& parameter : sharded) dims.emplace(parameter.shard.unsafeGetTensorImpl(), parameter.dim);
  std::vector<ParameterPlace> places;
  const auto& groups = optimizer.param_groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    const auto& parameters = groups[group].params();
    for (size_t index = 0; index < parameters.size(); ++index) {
      places.push_back({group, index, parameters[index], {}});
      const auto found = dims.find(parameters[index].unsafeGetTensorImpl());
      if (found != dims.end()) places.back().dim = found->second;
    }
  }
  return places;
}

Group sharding_group_of(const std::vector<ParameterPlace>& places) {
  Group group;
  for (const auto& place : places) {
    if (!place.dim) continue;
    const auto groups = parallel::sharding_groups(place.parameter);
    const auto own = groups.empty() ? Group() : groups.front();
    TORCH_CHECK_NOT_IMPLEMENTED(groups.size() < 2,
                                "[cohort] the optimizer's parameters are also sharded on other axes of the mesh, as "
                                "with tensor parallelism\n  hint: "
                                "use get_optimizer_state_dict (checkpoint/state/distributed_state.h)");
    TORCH_CHECK_NOT_IMPLEMENTED(!group || own == group,
                                "[cohort] the optimizer's parameters are sharded over several groups of ranks; use one "
                                "optimizer for each group");
    group = own;
  }
  TORCH_CHECK_VALUE(group,
                    "[cohort] none of the optimizer's parameters is a shard; build it on model->parameters() of the "
                    "model that fully_shard returned");
  return group;
}

int64_t bits_of(const OptimizerFields& fields) {
  int64_t bits = 0;
  for (size_t i = 0; i < fields.tensors.size(); ++i) bits |= int64_t{fields.tensors[i].defined()} << i;
  return bits;
}

// Returns the same count of numbers for each parameter: which tensors its state has, and its numbers.
std::vector<int64_t> numbers_of(const Optimizer& optimizer) {
  std::vector<int64_t> numbers;
  const auto blank = blank_fields(optimizer);
  for (const auto& place : places_of(optimizer)) {
    const auto fields = fields_of(optimizer, place.parameter);
    numbers.push_back(fields ? bits_of(*fields) : kNoState);
    const auto own = fields ? fields->numbers : blank.numbers;
    numbers.insert(numbers.end(), own.begin(), own.end());
  }
  return numbers;
}

// `numbers`: one of `num_places` equal parts belongs to each place.
std::string describe_state(const std::vector<int64_t>& numbers, size_t place, size_t num_places) {
  const auto begin = place * (numbers.size() / num_places);
  const auto bits = numbers.at(begin);
  if (bits == kNoState) return "nothing";
  return c10::str("of ", __builtin_popcountll(static_cast<uint64_t>(bits)), " tensor(s) after step ",
                  numbers.size() == num_places ? 0 : numbers.at(begin + 1));
}

// Throws if the ranks' optimizers differ. Collective.
void agree_on(const char* function, const Optimizer& optimizer, const std::vector<ParameterPlace>& places,
              bool has_state, const Group& group) {
  std::vector<int64_t> sizes;
  for (const auto& members : optimizer.param_groups()) sizes.push_back(static_cast<int64_t>(members.params().size()));
  comm::Claim claim{.function = function, .outcome = "no state was exchanged"};
  claim.hint = "all ranks need optimizers of the same groups of parameters, after the same steps";
  claim.facts = {{"the number of parameters in each group of the optimizer", c10::str(at::IntArrayRef(sizes))}};
  for (const auto& place : places) claim.facts.push_back({describe_place(place), place.dim ? "a shard" : "whole"});
  const auto numbers = has_state ? numbers_of(optimizer) : std::vector<int64_t>();
  for (size_t i = 0; has_state && i < places.size(); ++i) {
    claim.facts.push_back({"the state of " + describe_place(places[i]), describe_state(numbers, i, places.size())});
  }
  const comm::CalledFor purpose(parallel::kStateExchange);
  comm::agree(claim, {group});
}

// Returns how the ranks share each parameter; without counts if it is not sharded. Collective.
std::vector<ShardRows> rows_of_places(const std::vector<ParameterPlace>& places, const Group& group) {
  std::vector<int64_t> counts;
  for (const auto& place : places) counts.push_back(place.dim ? place.parameter.size(*place.dim) : 0);
  const comm::CalledFor purpose(parallel::kStateExchange);
  const auto all_counts = comm::RankExchange(group).all_numbers(counts);
  std::vector<ShardRows> result(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i].dim) continue;
    result[i].dim = *places[i].dim;
    for (const auto& of_rank : all_counts) result[i].counts.push_back(of_rank.at(i));
  }
  return result;
}

// Called on rank 0.
void check_full(const Optimizer* full, const Optimizer& optimizer, const std::vector<ShardRows>& rows) {
  TORCH_CHECK_VALUE(
      full, "[cohort] the state of all parameters needs an optimizer on rank 0 of the group, but it is null there");
  TORCH_CHECK_TYPE(typeid(*full) == typeid(optimizer),
                   "[cohort] the optimizers of shards and of all parameters must be of one kind");
  const auto& theirs = full->param_groups();
  const auto& ours = optimizer.param_groups();
  TORCH_CHECK_VALUE(theirs.size() == ours.size(), "loaded state dict has a different number of parameter groups");
  for (size_t i = 0; i < ours.size(); ++i) {
    TORCH_CHECK_VALUE(theirs[i].params().size() == ours[i].params().size(),
                      "loaded state dict contains a parameter group that doesn't match the size of optimizer's group");
  }
  const auto places = places_of(*full);
  const auto own_places = places_of(optimizer);
  for (size_t i = 0; i < places.size(); ++i) {
    auto sizes = own_places[i].parameter.sizes().vec();
    const auto& counts = rows[i].counts;
    if (!counts.empty()) sizes[rows[i].dim] = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    TORCH_CHECK_VALUE(places[i].parameter.sizes() == sizes, "[cohort] ", describe_place(places[i]), " has the shape ",
                      places[i].parameter.sizes(), ", but all ranks' shards together have ", at::IntArrayRef(sizes));
    const auto fields = fields_of(*full, places[i].parameter);
    for (size_t j = 0; fields && j < fields->tensors.size(); ++j) {
      const auto& tensor = fields->tensors[j];
      TORCH_CHECK_VALUE(!tensor.defined() || tensor.sizes() == sizes, "[cohort] the state of ",
                        describe_place(places[i]), " has the shape ", tensor.sizes(), ", the parameter has ",
                        at::IntArrayRef(sizes));
    }
  }
}

// If `check` throws on rank 0, all ranks throw; otherwise all get its result there. Collective.
template <class Check>
c10::IValue ask_first_rank(const Group& group, Check check) {
  const comm::RankExchange ranks(group);
  const comm::CalledFor purpose(parallel::kStateExchange);
  return comm::unpickle(comm::or_throw_value(ranks.from_first(
      comm::attempt([&] { return ranks.is_first() ? comm::pickle(c10::IValue(check())) : std::string(); }))));
}

std::string bytes_of_options(const torch::optim::OptimizerOptions& options) {
  torch::serialize::OutputArchive archive;
  options.serialize(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

std::unique_ptr<torch::optim::OptimizerOptions> options_of_bytes(const torch::optim::OptimizerOptions& kind,
                                                                 const std::string& bytes) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  auto options = kind.clone();
  options->serialize(archive);
  return options;
}

// Returns what rank 0 tells the others of `full`: which tensors there are, the steps, and each group's options.
c10::IValue plan_of(const Optimizer& full) {
  std::vector<c10::IValue> plan{c10::IValue(numbers_of(full))};
  for (const auto& members : full.param_groups()) {
    plan.push_back(comm::bytes_value(bytes_of_options(members.options())));
  }
  return c10::ivalue::Tuple::create(std::move(plan));
}

// Returns this rank's shard of the tensors of rank 0's `fields`, which are undefined elsewhere. Collective.
OptimizerFields scatter_fields(const OptimizerFields& fields, int64_t bits, const at::Tensor& parameter,
                               const ShardRows& rows, const Group& group) {
  OptimizerFields own;
  own.tensors.resize(fields.tensors.size());
  for (size_t i = 0; i < own.tensors.size(); ++i) {
    if ((bits >> i & 1) == 0) continue;
    if (!rows.counts.empty()) {
      own.tensors[i] = scatter_shards(fields.tensors[i], parameter, rows, group);
      continue;
    }
    own.tensors[i] = at::empty_like(parameter.detach(), at::MemoryFormat::Contiguous);
    if (fields.tensors[i].defined()) own.tensors[i].copy_(fields.tensors[i]);
    const comm::CalledFor purpose(parallel::kStateExchange);
    broadcast(own.tensors[i], group_rank(0), {.group = group});
  }
  return own;
}

}  // namespace

void get_full_optimizer_state(const std::vector<ShardedParameter>& parameters, const Optimizer& optimizer,
                              Optimizer* full) {
  check_divisible(optimizer);
  const auto places = places_of(optimizer, parameters);
  const auto group = sharding_group_of(places);
  agree_on("get_full_optimizer_state", optimizer, places, /*has_state=*/true, group);
  const auto rows = rows_of_places(places, group);
  const bool is_first = group->getRank() == 0;
  ask_first_rank(group, [&] {
    check_full(full, optimizer, rows);
    return c10::IValue();
  });
  if (is_first) {
    full->state().clear();
    for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
      full->param_groups()[i].set_options(optimizer.param_groups()[i].options().clone());
    }
  }
  const auto full_places = is_first ? places_of(*full) : std::vector<ParameterPlace>();
  for (size_t i = 0; i < places.size(); ++i) {
    auto fields = fields_of(optimizer, places[i].parameter);
    if (!fields) continue;
    for (auto& tensor : fields->tensors) {
      if (!tensor.defined()) continue;
      if (!rows[i].counts.empty()) tensor = gather_shards(tensor, rows[i], group);
      if (is_first)
        tensor = tensor.to(full_places[i].parameter.device(), /*non_blocking=*/false, /*copy=*/rows[i].counts.empty());
    }
    if (is_first) set_fields(*full, full_places[i].parameter, std::move(*fields));
  }
}

void set_full_optimizer_state(const std::vector<ShardedParameter>& parameters, Optimizer& optimizer,
                              const Optimizer* full) {
  check_divisible(optimizer);
  const auto places = places_of(optimizer, parameters);
  const auto group = sharding_group_of(places);
  agree_on("set_full_optimizer_state", optimizer, places, /*has_state=*/false, group);
  const auto rows = rows_of_places(places, group);
  const auto answer = ask_first_rank(group, [&] {
    check_full(full, optimizer, rows);
    return plan_of(*full);
  });
  const auto& plan = answer.toTupleRef().elements();
  const auto numbers = plan[0].toIntVector();
  const bool is_first = group->getRank() == 0;
  const auto full_places = is_first ? places_of(*full) : std::vector<ParameterPlace>();
  optimizer.state().clear();
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    auto& members = optimizer.param_groups()[i];
    members.set_options(options_of_bytes(members.options(), comm::bytes_of(plan[i + 1])));
  }
  const auto blank = blank_fields(optimizer);
  for (size_t i = 0; i < places.size(); ++i) {
    const auto own_numbers = at::ArrayRef<int64_t>(numbers).slice(i * (1 + blank.numbers.size()));
    if (own_numbers.front() == kNoState) continue;
    const auto fields = is_first ? *fields_of(*full, full_places[i].parameter) : blank;
    auto own = scatter_fields(fields, own_numbers.front(), places[i].parameter, rows[i], group);
    own.numbers = own_numbers.slice(1, blank.numbers.size()).vec();
    set_fields(optimizer, places[i].parameter, std::move(own));
  }
}

}  // namespace cohort::fsdp
