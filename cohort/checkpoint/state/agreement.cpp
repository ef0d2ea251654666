#include "cohort/checkpoint/state/agreement.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "cohort/base/text.h"
#include "cohort/checkpoint/state/model_parts.h"
#include "cohort/checkpoint/state/module_names.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/dtensor/api/dtensor.h"
#include "cohort/parallel/ddp/replica.h"
#include "cohort/parallel/fsdp/sharded_module.h"
#include "cohort/parallel/module/purpose.h"
#include "cohort/parallel/module/sharded_tensors.h"
#include "cohort/parallel/zero/zero_redundancy_optimizer.h"

namespace cohort::checkpoint::detail {
namespace {

using Refusals = std::map<int64_t, std::string>;  // by rank; empty: it can go on

// What the ranks of a group, and of those before it, have told each other.
struct Findings {
  Refusals refusals = {};
  std::string difference = {};
};

std::string value_at(const fsdp::Facts& facts, const std::string& name, size_t place) {
  return place < facts.size() && facts[place].name == name ? facts[place].value : "nothing";
}

// The first fact that is not the same everywhere, and who has which value.
std::string difference_of(const std::vector<fsdp::Facts>& all, const Group& group, bool are_complete) {
  const auto by_size = [](const auto& one, const auto& other) { return one.size() < other.size(); };
  const auto& most = *std::max_element(all.begin(), all.end(), by_size);
  const auto& least = *std::min_element(all.begin(), all.end(), by_size);
  for (size_t i = 0; i < (are_complete ? most : least).size(); ++i) {
    std::vector<std::pair<std::string, std::vector<int>>> values;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto value = value_at(all[rank], most[i].name, i);
      auto found = std::find_if(values.begin(), values.end(), [&](const auto& known) { return known.first == value; });
      if (found == values.end()) found = values.insert(values.end(), {value, {}});
      found->second.push_back(fsdp::number_of(group, rank));
    }
    if (values.size() == 1) continue;
    std::vector<std::string> texts;
    for (const auto& [value, ranks] : values) texts.push_back(value + " on " + base::ranks_in_words(ranks));
    return most[i].name + " is " + base::join(texts, ", but ");
  }
  return "";
}

Findings exchanged(const Findings& known, const fsdp::Facts& facts, const Group& group) {
  c10::Dict<int64_t, std::string> refusals;
  for (const auto& [rank, reason] : known.refusals) refusals.insert(rank, reason);
  std::vector<std::string> words;
  for (const auto& [name, value] : facts) words.insert(words.end(), {name, value});
  const comm::CalledFor purpose(parallel::kStateExchange);
  ObjectList all(static_cast<size_t>(group->getSize()));
  all_gather_object(all, c10::ivalue::Tuple::create({refusals, known.difference, words}), {.group = group});
  Findings result;
  std::vector<fsdp::Facts> facts_of_ranks;
  bool can_all = true;
  for (const auto& of_rank : all) {
    const auto& elements = of_rank.toTupleRef().elements();
    for (const auto& entry : elements[0].toGenericDict()) {
      auto& reason = result.refusals[entry.key().toInt()];  // where there is no job, several may have a number
      if (reason.empty()) reason = entry.value().toStringRef();
      can_all = can_all && reason.empty();
    }
    if (result.difference.empty()) result.difference = elements[1].toStringRef();
    auto& others = facts_of_ranks.emplace_back();
    const auto texts = elements[2].toListRef();
    for (size_t i = 0; i + 1 < texts.size(); i += 2)
      others.push_back({texts[i].toStringRef(), texts[i + 1].toStringRef()});
  }
  if (result.difference.empty()) result.difference = difference_of(facts_of_ranks, group, can_all);
  return result;
}

std::string members_in_words(const Group& group) {
  std::vector<int> ranks;
  for (int rank = 0; rank < group->getSize(); ++rank)
    ranks.push_back(fsdp::number_of(group, static_cast<size_t>(rank)));
  return "that of " + base::ranks_in_words(ranks);
}

std::string in_words(bool value) { return value ? "true" : "false"; }

}  // namespace

void Participants::add(const Group& group) {
  if (group && std::find(always.begin(), always.end(), group) == always.end()) always.push_back(group);
}

Agreement::Agreement(std::string function, std::string outcome, const StateDictOptions& options,
                     Participants participants)
    : function_(std::move(function)), outcome_(std::move(outcome)), participants_(std::move(participants)) {
  const auto& group = participants_.by_options;
  options_ = {{"the function", function_},
              {"full_state_dict", in_words(options.full_state_dict)},
              {"broadcast_from_rank0", in_words(options.broadcast_from_rank0)},
              {"ignore_frozen_params", in_words(options.ignore_frozen_params)},
              {"process_group", group ? members_in_words(group) : "not used"}};
  auto& always = participants_.always;
  if (std::find(always.begin(), always.end(), group) != always.end()) participants_.by_options = {};
}

void Agreement::reach(const std::function<fsdp::Facts()>& step) const {
  auto facts = options_;
  std::exception_ptr own;
  try {
    for (auto& fact : step()) facts.push_back(std::move(fact));
  } catch (...) {
    own = std::current_exception();
  }
  const std::string reason = own ? comm::text_of(own) : "";
  Findings findings;
  const auto meet = [&](const Group& group) {
    if (!group || group->getSize() == 1) return;
    auto& known = findings.refusals;
    if (known.empty()) known.emplace(fsdp::number_of(group, static_cast<size_t>(group->getRank())), reason);
    findings = exchanged(findings, facts, group);  // what one group has told, the next one hears
  };
  for (const auto& group : participants_.always) meet(group);
  if (findings.difference.empty()) meet(participants_.by_options);
  const auto what = "[cohort] " + function_ + ": " + outcome_;
  TORCH_CHECK(findings.difference.empty(), what, ", as the ranks differ: ", findings.difference,
              "\n  hint: call it on all ranks that share the model, with the same model and the same options");
  const auto& refusals = findings.refusals;
  const bool is_everywhere =
      std::all_of(refusals.begin(), refusals.end(), [&](const auto& entry) { return entry.second == reason; });
  if (is_everywhere && own) std::rethrow_exception(own);
  std::string text;
  for (const auto& [rank, why] : refusals) {
    if (why.empty()) continue;
    const auto plain = why.starts_with("[cohort] ") ? why.substr(9) : why;
    text += "\n  rank " + std::to_string(rank) + ": " + base::replace_all(plain, "\n", "\n  ");
  }
  TORCH_CHECK(text.empty(), what, text);
}

std::vector<fsdp::Sharding*> shardings_of(const torch::nn::Module& model) {
  std::vector<fsdp::Sharding*> result;
  const auto add = [&](const torch::nn::Module& module) {
    const auto* const sharded = dynamic_cast<const fsdp::ShardedModule*>(&module);
    if (!sharded) return;
    for (const auto& sharding : sharded->shardings()) {
      if (std::find(result.begin(), result.end(), sharding.get()) == result.end()) result.push_back(sharding.get());
    }
  };
  add(model);
  for (const auto& module : model.modules(/*include_self=*/false)) add(*module);
  return result;
}

Participants sharers_of(const torch::nn::Module& model) {
  Participants result;
  for (const auto* const sharding : shardings_of(model)) result.add(sharding->process_group());
  for (const auto& list : {model.parameters(), model.buffers()}) {
    for (const auto& tensor : list) {
      if (const auto cut = parallel::cut_of(tensor)) result.add(cut->group);
      if (!is_dtensor(tensor)) continue;
      for (const auto& group : DTensor(tensor).device_mesh().groups()) result.add(group);
    }
  }
  return result;
}

Participants holders_of(const torch::nn::Module& model) {
  auto result = sharers_of(model);
  for (const auto* const sharding : shardings_of(model)) result.add(sharding->replica_group());
  const auto* const replicated = dynamic_cast<const ddp::Replicated*>(&model);
  if (replicated) result.add(replicated->group_of_replicas());
  return result;
}

void add_sharers_of(const OptimizerList& optimizers, Participants& participants) {
  for (auto* const optimizer : optimizers) {
    const auto* const zero = dynamic_cast<const ZeroRedundancyOptimizer*>(optimizer);
    if (zero) participants.add(zero->join_process_group());
  }
}

fsdp::Facts parts_of(const ShardedStateDict& state) {
  fsdp::Facts facts;
  for (const auto& item : state) {
    if (!item.value().is_part()) continue;
    facts.push_back({fmt::format("part {} of the state", facts.size() + 1),
                     fmt::format("\"{}\" of {}, {}", item.key(), torch_size(item.value().spec->shape()),
                                 c10::toString(item.value().tensor.scalar_type()))});
  }
  return facts;
}

}  // namespace cohort::checkpoint::detail
