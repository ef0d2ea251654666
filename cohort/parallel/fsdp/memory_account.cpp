#include "cohort/parallel/fsdp/memory_account.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "cohort/base/text/text.h"
#include "cohort/comm/agreement/rank_exchange.h"
#include "cohort/comm/tensors/operation_text.h"
#include "cohort/parallel/fsdp/full_tensor.h"
#include "cohort/parallel/fsdp/fully_shard.h"
#include "cohort/parallel/fsdp/groups/param_group.h"
#include "cohort/parallel/fsdp/optimizer_fields.h"
#include "cohort/parallel/module/sharded_tensors.h"

namespace cohort::fsdp {
namespace {

using TableLine = std::vector<std::string>;

size_t bytes_of_state(const torch::optim::Optimizer& optimizer, const at::Tensor& shard) {
  size_t bytes = 0;
  if (const auto fields = fields_of(optimizer, shard)) {
    for (const auto& tensor : fields->tensors) bytes += bytes_in({tensor});
  }
  return bytes;
}

// Returns each once.
std::vector<const Sharding*> shardings_in(const torch::nn::Module& model) {
  std::vector<const Sharding*> result;
  std::unordered_set<const Sharding*> seen;
  const auto add = [&](const torch::nn::Module& module) {
    const auto* const sharded = dynamic_cast<const ShardedModule*>(&module);
    if (!sharded) return;
    for (const auto& sharding : sharded->shardings()) {
      if (seen.insert(sharding.get()).second) result.push_back(sharding.get());
    }
  };
  add(model);
  for (const auto& module : model.modules(/*include_self=*/false)) add(*module);
  return result;
}

// Aligns the first column left, and the others right, below their headings.
std::string table(const std::vector<TableLine>& lines) {
  std::vector<size_t> widths(lines.front().size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    text += fmt::format("  {:<{}}", line[0], widths[0]);
    for (size_t i = 1; i < line.size(); ++i) text += fmt::format("  {:>{}}", line[i], widths[i]);
    text += "\n";
  }
  return text;
}

struct MemorySum {
  const char* what;
  size_t num_bytes;
};

std::array<MemorySum, 7> sums_of(const MemoryAccount& account) {
  using Parameter = MemoryAccount::Parameter;
  const auto sum = [&](size_t Parameter::*field) {
    size_t bytes = 0;
    for (const auto& parameter : account.parameters) bytes += parameter.*field;
    return bytes;
  };
  return {{{"parameters", sum(&Parameter::num_shard_bytes)},
           {"copies of parameters for modules", sum(&Parameter::num_copy_bytes)},
           {"gradients of shards", sum(&Parameter::num_gradient_bytes)},
           {"optimizer's state of shards", sum(&Parameter::num_optimizer_bytes)},
           {"gradients waiting for a reduction", sum(&Parameter::num_waiting_bytes)},
           {"gradients that others may be reading", account.num_in_flight_bytes},
           {"pages of copies of gradients", account.num_staging_bytes}}};
}

std::vector<size_t> sums_of_all_ranks(const MemoryAccount& account, const Group& group) {
  std::vector<int64_t> own;
  for (const auto& sum : sums_of(account)) own.push_back(static_cast<int64_t>(sum.num_bytes));
  std::vector<size_t> sums(own.size());
  for (const auto& numbers : comm::RankExchange(group).all_numbers(own)) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<size_t>(numbers.at(i));
  }
  return sums;
}

}  // namespace

MemoryAccount memory_account(const Sharding& sharding, const torch::optim::Optimizer& optimizer) {
  const auto memory = sharding.memory();
  MemoryAccount account{.parameters = {},
                        .num_in_flight_bytes = memory.num_in_flight_bytes,
                        .num_staging_bytes = memory.num_staging_bytes,
                        .is_optimizer_known = is_divisible(optimizer)};
  const auto& parameters = sharding.sharded_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& shard = parameters[i].shard;
    account.parameters.push_back(
        {.name = parameters[i].name,
         .dtype = shard.scalar_type(),
         .sizes = parameters[i].full.sizes().vec(),
         .shard_sizes = shard.sizes().vec(),
         .num_shard_bytes = shard.nbytes(),
         .num_copy_bytes = memory.parameters[i].num_copy_bytes,
         .num_gradient_bytes = bytes_in({shard.grad()}),
         .num_optimizer_bytes = account.is_optimizer_known ? bytes_of_state(optimizer, shard) : 0,
         .num_waiting_bytes = memory.parameters[i].num_waiting_bytes});
  }
  return account;
}

MemoryAccount memory_account(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer) {
  MemoryAccount account{.is_optimizer_known = is_divisible(optimizer)};
  std::unordered_map<const void*, MemoryAccount::Parameter> known;
  for (const auto* const sharding : shardings_in(model)) {
    auto of_call = memory_account(*sharding, optimizer);
    account.num_in_flight_bytes += of_call.num_in_flight_bytes;
    account.num_staging_bytes += of_call.num_staging_bytes;
    for (size_t i = 0; i < of_call.parameters.size(); ++i) {
      const auto* const key = sharding->sharded_parameters()[i].full.unsafeGetTensorImpl();
      known.emplace(key, std::move(of_call.parameters[i]));
    }
  }
  for (const auto& parameter : sharded_parameters(model)) {
    auto& counted = known.at(parameter.full.unsafeGetTensorImpl());
    counted.name = parameter.name;
    account.parameters.push_back(std::move(counted));
  }
  return account;
}

std::string memory_report(const MemoryAccount& account, const Group& group) {
  const int rank = group ? group->getRank() : 0;
  const int size = group ? group->getSize() : 1;
  std::vector<TableLine> lines{
      {"name", "dtype", "shape", "shard", "parameter", "copy", "gradient", "optimizer", "waiting"}};
  for (const auto& parameter : account.parameters) {
    lines.push_back({parameter.name, comm::dtype_name(parameter.dtype), comm::shape_text(parameter.sizes),
                     comm::shape_text(parameter.shard_sizes)});
    for (const auto bytes : {parameter.num_shard_bytes, parameter.num_copy_bytes, parameter.num_gradient_bytes,
                             parameter.num_optimizer_bytes, parameter.num_waiting_bytes}) {
      lines.back().push_back(base::format_bytes(bytes));
    }
  }
  auto text = fmt::format("memory of fully_shard, rank {} of {}\n{}\n", rank, size, table(lines));
  const auto of_all = sums_of_all_ranks(account, group);
  lines = {{"", "this rank", "all ranks"}};
  size_t own_bytes = 0, all_bytes = 0;
  for (size_t i = 0; const auto& sum : sums_of(account)) {
    lines.push_back({sum.what, base::format_bytes(sum.num_bytes), base::format_bytes(of_all[i])});
    own_bytes += sum.num_bytes;
    all_bytes += of_all[i++];
  }
  lines.push_back({"in all", base::format_bytes(own_bytes), base::format_bytes(all_bytes)});
  text += table(lines);
  if (!account.is_optimizer_known) text += "  without the optimizer's state, since its type is unknown\n";
  return text;
}

std::string memory_report(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer) {
  const auto parameters = sharded_parameters(model);
  const auto group = parameters.empty() ? Group() : parallel::sharding_group(parameters.front().shard);
  return memory_report(memory_account(model, optimizer), group);
}

}  // namespace cohort::fsdp
