#include "cohort/checkpoint/state/agreement.h"

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <exception>
#include <map>

#include "cohort/base/text.h"
#include "cohort/comm/collectives/object_collectives.h"
#include "cohort/comm/watch/throw_failure.h"
#include "cohort/parallel/fsdp/agreement.h"
#include "cohort/parallel/fsdp/sharded_module.h"

namespace cohort::checkpoint::detail {
namespace {

using Refusals = std::map<int64_t, std::string>;  // by rank; empty: it can go on

Refusals exchanged(const Refusals& known, const Group& group) {
  c10::Dict<int64_t, std::string> own;
  for (const auto& [rank, reason] : known) own.insert(rank, reason);
  ObjectList all(static_cast<size_t>(group->getSize()));
  all_gather_object(all, c10::IValue(own), {.group = group});
  Refusals result;
  for (const auto& of_rank : all) {
    for (const auto& entry : of_rank.toGenericDict()) {
      auto& reason = result[entry.key().toInt()];  // where there is no job, several may have a number
      if (reason.empty()) reason = entry.value().toStringRef();
    }
  }
  return result;
}

}  // namespace

void Agreement::reach(const std::function<void()>& step) const {
  std::exception_ptr own;
  try {
    step();
  } catch (...) {
    own = std::current_exception();
  }
  const std::string reason = own ? comm::text_of(own) : "";
  Refusals refusals;
  for (const auto& group : groups_) {
    if (!group || group->getSize() == 1) continue;
    if (refusals.empty()) refusals.emplace(fsdp::number_of(group, static_cast<size_t>(group->getRank())), reason);
    refusals = exchanged(refusals, group);  // what one group has told, the next one hears
  }
  const bool is_everywhere =
      std::all_of(refusals.begin(), refusals.end(), [&](const auto& entry) { return entry.second == reason; });
  if (is_everywhere && own) std::rethrow_exception(own);
  std::string text;
  for (const auto& [rank, why] : refusals) {
    if (why.empty()) continue;
    const auto plain = why.starts_with("[cohort] ") ? why.substr(9) : why;
    text += "\n  rank " + std::to_string(rank) + ": " + base::replace_all(plain, "\n", "\n  ");
  }
  TORCH_CHECK(text.empty(), "[cohort] ", what_, text);
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

std::vector<Group> groups_of(const torch::nn::Module& model, bool with_replicas) {
  std::vector<Group> result;
  const auto add = [&](const Group& group) {
    if (group && std::find(result.begin(), result.end(), group) == result.end()) result.push_back(group);
  };
  for (const auto* const sharding : shardings_of(model)) {
    add(sharding->process_group());
    if (with_replicas) add(sharding->replica_group());
  }
  return result;
}

}  // namespace cohort::checkpoint::detail
