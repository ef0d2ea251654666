#include "cohort/checkpoint/sharded/save_session.h"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/checkpoint/sharded/local_part.h"

namespace cohort::checkpoint::detail {

SaveSession::SaveSession(const char* function, std::string folder, ShardedSaveOptions options)
    : function_(function),
      folder_(std::move(folder)),
      options_(std::move(options)),
      files_(folder_, options_.sync_files) {}

std::vector<std::string> SaveSession::plan_for_all(const std::vector<StepResult>& described) {
  for (const StepResult& result : described) items_by_rank_.push_back(value_or_throw(files::parse_items(result.text)));
  throw_if_failed(files_.prepare(options_.overwrite));
  plan_ = value_or_throw(files::plan_save(items_by_rank_, {.max_file_bytes = options_.max_shard_size,
                                                           .num_files = static_cast<size_t>(options_.num_files),
                                                           .prefix = files_.free_prefix()}));
  plan_.index.metadata = options_.metadata;
  throw_if_failed(files_.create(plan_));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < described.size(); ++rank) texts.push_back(files::format_writes(plan_, rank));
  return texts;
}

void SaveSession::plan(const RankExchange& exchange, const ShardedStateDict& state, const std::string& problem) {
  const StepResult described = attempt([&] {
    TORCH_CHECK(problem.empty(), problem);
    TORCH_CHECK_VALUE(options_.num_files >= 0, "num_files is ", options_.num_files, ", but cannot be negative");
    items_ = describe(state);
    return value_or_throw(files::format_items(items_));
  });
  const std::vector<StepResult> all = exchange.gather(described);
  Failures failures = failures_of(all);
  std::vector<std::string> texts;
  if (exchange.rank() == 0 && failures.empty()) {
    const StepResult planned = attempt([&] {
      texts = plan_for_all(all);
      return std::string();
    });
    if (planned.failed) failures.emplace(0, planned.text);
  }
  own_plan_ = value_or_throw(files::parse_writes(exchange.scatter(what(), texts, failures)));
}

StepResult SaveSession::write(const std::function<const char*(size_t)>& data_of) {
  return attempt([&] {
    std::vector<std::string> names;
    for (const files::PlannedFile& file : own_plan_.files) names.push_back(file.name);
    files::PieceWriter writer(folder_, std::move(names), options_.sync_files);
    std::vector<uint32_t> checksums;
    for (size_t i = 0; i < writes().size(); ++i) {
      checksums.push_back(value_or_throw(writer.write(writes()[i], item_of(writes()[i]), data_of(i))));
    }
    throw_if_failed(writer.finish());
    return nlohmann::json(checksums).dump();
  });
}

void SaveSession::finish(const RankExchange& exchange, const StepResult& written) {
  const std::vector<StepResult> all = exchange.gather(written);
  Failures failures = failures_of(all);
  if (exchange.rank() == 0 && failures.empty()) {
    const StepResult committed = attempt([&] {
      std::vector<std::vector<uint32_t>> checksums;
      for (const StepResult& result : all) checksums.push_back(nlohmann::json::parse(result.text));
      throw_if_failed(files::add_checksums(items_by_rank_, checksums, plan_));
      throw_if_failed(files_.commit(plan_));
      return std::string();
    });
    if (committed.failed) failures.emplace(0, committed.text);
  }
  exchange.scatter(what(), std::vector<std::string>(static_cast<size_t>(exchange.size())), failures);
}

}  // namespace cohort::checkpoint::detail

namespace cohort::checkpoint {

void save_sharded(const ShardedStateDict& state, const std::string& folder, const ShardedSaveOptions& options) {
  const detail::RankExchange exchange(detail::RankExchange::group_of(options.group, options.no_dist));
  detail::SaveSession session("save_sharded", folder, options);
  session.plan(exchange, state);
  at::Tensor data;
  const auto written = session.write([&](size_t i) {
    data = detail::plain_data(state[session.writes()[i].item].value().tensor);
    return static_cast<const char*>(data.const_data_ptr());
  });
  session.finish(exchange, written);
}

}  // namespace cohort::checkpoint
