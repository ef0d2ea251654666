#include "cohort/checkpoint/sharded/save_session.h"

#include <c10/util/Exception.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "cohort/checkpoint/sharded/save_items.h"
#include "cohort/comm/error/throw_error.h"
#include "cohort/parallel/module/purpose.h"

namespace cohort::checkpoint::detail {

SaveSession::SaveSession(const char* function, std::string folder, SaveShardedOptions options)
    : function_(function),
      folder_(std::move(folder)),
      options_(std::move(options)),
      files_(folder_, options_.sync_files) {}

comm::RankExchange ranks_of(const Group& group, bool no_dist) {
  if (no_dist) return comm::RankExchange({});
  return comm::RankExchange(group || !is_initialized() ? group : default_group());
}

std::vector<std::string> SaveSession::plan_for_all(const std::vector<std::string>& described) {
  for (const auto& items : described) items_by_rank_.push_back(comm::or_throw(files::parse_items(items)));
  comm::or_throw(files_.prepare(options_.overwrite));
  plan_ = comm::or_throw(files::plan_save(
      items_by_rank_,
      {.max_file_bytes = options_.max_shard_size, .num_files = options_.num_files, .prefix = files_.free_prefix()}));
  plan_.index.metadata = options_.metadata;
  comm::or_throw(files_.create(plan_));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < described.size(); ++rank) texts.push_back(files::format_writes(plan_, rank));
  return texts;
}

void SaveSession::plan(const comm::RankExchange& ranks, const ShardedStateDict& state, const std::string& problem) {
  const auto described = comm::attempt([&] {
    TORCH_CHECK(problem.empty(), problem);
    TORCH_CHECK_VALUE(options_.num_files.value_or(1) >= 1, "[cohort] num_files is at least 1, but got ",
                      *options_.num_files);
    items_ = describe(state);
    return comm::or_throw(files::format_items(items_));
  });
  const comm::CalledFor purpose(parallel::kStateExchange);
  const auto own = ranks.answer_of_first(what(), described, [&](const auto& all) { return plan_for_all(all); });
  own_plan_ = comm::or_throw(files::parse_writes(own));
}

comm::StepResult SaveSession::write(const std::function<const char*(size_t)>& data_of) {
  return comm::attempt([&] {
    std::vector<std::string> names;
    for (const files::PlannedFile& file : own_plan_.files) names.push_back(file.name);
    files::PieceWriter writer(folder_, std::move(names), options_.sync_files);
    std::vector<uint32_t> checksums;
    for (size_t i = 0; i < writes().size(); ++i) {
      checksums.push_back(comm::or_throw(writer.write(writes()[i], item_of(writes()[i]), data_of(i))));
    }
    comm::or_throw(writer.finish());
    return nlohmann::json(checksums).dump();
  });
}

void SaveSession::finish(const comm::RankExchange& ranks, const comm::StepResult& written) {
  const comm::CalledFor purpose(parallel::kStateExchange);
  ranks.answer_of_first(what(), written, [&](const auto& all) {
    std::vector<std::vector<uint32_t>> checksums;
    for (const std::string& text : all) checksums.push_back(nlohmann::json::parse(text));
    comm::or_throw(files::add_checksums(items_by_rank_, checksums, plan_));
    comm::or_throw(files_.commit(plan_));
    return std::vector<std::string>(all.size());
  });
}

}  // namespace cohort::checkpoint::detail

namespace cohort::checkpoint {

void save_sharded(const ShardedStateDict& state, const std::string& folder, const SaveShardedOptions& options) {
  const auto ranks = detail::ranks_of(options.process_group, options.no_dist);
  detail::SaveSession session("save_sharded", folder, options);
  session.plan(ranks, state);
  at::Tensor data;
  const auto written = session.write([&](size_t i) {
    data = detail::plain_data(state[session.writes()[i].item].value().tensor);
    return static_cast<const char*>(data.const_data_ptr());
  });
  session.finish(ranks, written);
}

}  // namespace cohort::checkpoint
