#include "cohort/rendezvous/rounds/records.h"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cohort/base/text/text.h"

namespace cohort::rendezvous {
namespace {

using base::Error;
using nlohmann::json;

// A member is a line of text: every node reads the record of a round, and JSON of a thousand nodes takes ten times as long to
// read.
constexpr size_t kNumFields = 11;

std::string one_line(std::string text) {
  for (char& letter : text) letter = letter == '\t' || letter == '\n' ? ' ' : letter;
  return text;
}

std::string to_line(const Member& member) {
  const auto& node = member.node;
  return base::join({std::to_string(member.id), one_line(node.host), one_line(node.address), std::to_string(node.pid),
                     std::to_string(node.local_world_size), one_line(node.role), one_line(member.sort_name),
                     one_line(member.store_address), std::to_string(member.fixed_rank),
                     std::to_string(member.max_restarts), one_line(node.public_key)},
                    "\t");
}

int64_t number_of(const std::string& text) {
  const auto number = base::parse_int(text);
  if (!number) throw std::invalid_argument("\"" + text + "\" is not a number");
  return *number;
}

int int_of(const std::string& text) { return static_cast<int>(number_of(text)); }

Member member_from(const std::string& line) {
  const auto fields = base::split(line, '\t');
  if (fields.size() != kNumFields)
    throw std::invalid_argument("a node has " + std::to_string(fields.size()) + " fields");
  Member member;
  member.id = number_of(fields[0]);
  member.node = {fields[1], fields[2], int_of(fields[3]), int_of(fields[4]), fields[5], fields[10]};
  member.sort_name = fields[6];
  member.store_address = fields[7];
  member.fixed_rank = int_of(fields[8]);
  member.max_restarts = int_of(fields[9]);
  return member;
}

json to_json(const LeadRecord& lead) { return {{"news", "lead"}, {"id", lead.id}, {"silent", lead.silent}}; }

json to_json(const RoundRecord& round) {
  std::vector<std::string> lines;
  for (const auto& member : round.members) lines.push_back(to_line(member));
  return {{"news", "round"},
          {"number", round.number},
          {"restart_count", round.restart_count},
          {"max_restarts", round.max_restarts},
          {"members", base::join(lines, "\n")}};
}

json to_json(const OverRecord& over) {
  return {{"news", "over"},  {"round", over.round}, {"reason", static_cast<int>(over.reason)},
          {"why", over.why}, {"id", over.id},       {"job_ends", over.job_ends}};
}

News news_from(const json& value) {
  const std::string kind = value.at("news");
  if (kind == "lead") return LeadRecord{value.at("id"), value.at("silent")};
  if (kind == "round") {
    RoundRecord round{value.at("number"), value.at("restart_count"), value.at("max_restarts"), {}};
    for (const auto& line : base::split(value.at("members").get<std::string>(), '\n')) {
      round.members.push_back(member_from(line));
    }
    return round;
  }
  if (kind != "over") throw std::out_of_range("news of kind " + kind);
  return OverRecord{value.at("round"), static_cast<RoundOver::Reason>(value.at("reason").get<int>()), value.at("why"),
                    value.at("id"), value.at("job_ends")};
}

Notice notice_from(const json& value) {
  Notice notice;
  notice.kind = static_cast<Notice::Kind>(value.at("notice").get<int>());
  notice.id = value.at("id");
  notice.round = value.at("round");
  notice.why = value.at("why");
  if (notice.kind == Notice::Kind::kCome) notice.member = member_from(value.at("member"));
  return notice;
}

// Texts of other nodes may have bytes that are not UTF-8.
std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

template <class T, class Read>
base::Result<T> parse(const std::string& text, Read read) {
  try {
    return read(json::parse(text));
  } catch (const std::exception& problem) {
    return Error(fmt::format("the rendezvous' store has an entry that this program does not understand: {}",
                             text.substr(0, 100)))
        .caused_by(Error(problem.what()))
        .with_hint("run the same version of Cohort on every node, and give every job its own --rdzv-id");
  }
}

}  // namespace

std::string to_text(const Notice& notice) {
  json value = {
      {"notice", static_cast<int>(notice.kind)}, {"id", notice.id}, {"round", notice.round}, {"why", notice.why}};
  if (notice.kind == Notice::Kind::kCome) value["member"] = to_line(notice.member);
  return dump(value);
}

std::string to_text(const News& news) {
  return dump(std::visit([](const auto& record) { return to_json(record); }, news));
}

std::string to_text(const WorkersPlace& place) {
  return dump({{"address", place.address}, {"port", place.port}, {"agent_hosts_store", place.agent_hosts_store}});
}

base::Result<Notice> parse_notice(const std::string& text) { return parse<Notice>(text, notice_from); }
base::Result<News> parse_news(const std::string& text) { return parse<News>(text, news_from); }
base::Result<WorkersPlace> parse_workers_place(const std::string& text) {
  return parse<WorkersPlace>(text, [](const json& value) {
    return WorkersPlace{value.at("address"), value.at("port"), value.at("agent_hosts_store")};
  });
}

std::string name_of(const Member& member, const std::vector<const Member*>& among) {
  const auto same_host = [&](const auto& each) { return each->node.host == member.node.host; };
  if (std::count_if(among.begin(), among.end(), same_host) <= 1) return member.node.host;
  return fmt::format("{} (pid {})", member.node.host, member.node.pid);
}

}  // namespace cohort::rendezvous
