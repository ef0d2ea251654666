#include "cohort/rendezvous/rounds/agreement.h"

#include <fmt/format.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cohort/base/text/text.h"

namespace cohort::rendezvous {
namespace {

using base::Error;
using base::Result;
using nlohmann::json;

// Increased when nodes of the two versions could not work together.
constexpr int kProtocol = 1;

// Torchrun reads this as the state of its rendezvous. It must not be valid base64, or torchrun would go on: the number of its
// letters is not a multiple of four.
constexpr const char* kMark = "cohort run hosts this rendezvous; torchrun cannot take part";

struct Field {
  const char* name;
  const char* flag;
  bool may_differ;
};
constexpr Field kFields[] = {
    {"protocol", "the rendezvous protocol of Cohort", false},
    {"backend", "--rdzv-backend", false},
    {"nnodes", "--nnodes", false},
    {"keep_alive", "--rdzv-conf keep_alive_interval x keep_alive_max_attempt", false},
    {"last_call_timeout", "--rdzv-conf last_call_timeout", true},
    {"stable_ranks", "--rdzv-conf stable_ranks", true},
    {"max_restarts", "--max-restarts", true},
};

std::string backend_name(Settings::Backend backend) {
  static const char* const kNames[] = {"standalone", "static", "c10d", "etcd", "file"};
  return kNames[static_cast<size_t>(backend)];
}

Error torchrun_is_here(const std::string& place, const std::string& key) {
  return Error(fmt::format("the store at {} belongs to a rendezvous of torchrun (it has the key \"{}\")", place, key))
      .with_hint("start every node with the same launcher, or give the two jobs different ports");
}

}  // namespace

std::string settings_text(const Settings& settings, const std::string& host) {
  const auto num_nodes = settings.min_nodes == settings.max_nodes
                             ? std::to_string(settings.max_nodes)
                             : fmt::format("{}:{}", settings.min_nodes, settings.max_nodes);
  const auto keep_alive =
      base::format_duration(settings.keep_alive_interval) + " x " + std::to_string(settings.keep_alive_max_attempt);
  const json value = {{"host", host},
                      {"protocol", std::to_string(kProtocol)},
                      {"backend", backend_name(settings.backend)},
                      {"nnodes", num_nodes},
                      {"keep_alive", keep_alive},
                      {"last_call_timeout", base::format_duration(settings.last_call_timeout)},
                      {"stable_ranks", settings.stable_ranks ? "true" : "false"},
                      {"max_restarts", std::to_string(settings.max_restarts)}};
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<std::vector<std::string>> compare_settings(const std::string& own, const std::string& first) {
  const auto mine = json::parse(own, nullptr, false);
  const auto theirs = json::parse(first, nullptr, false);
  if (!theirs.is_object())
    return Error(fmt::format("the rendezvous' store has settings that cannot be read: {}", first.substr(0, 100)));
  std::vector<std::string> warnings;
  for (const auto& field : kFields) {
    const auto text_of = [&field](const json& value) {
      const auto found = value.find(field.name);
      return found != value.end() && found->is_string() ? found->get<std::string>() : std::string("?");
    };
    if (text_of(mine) == text_of(theirs)) continue;
    auto text = fmt::format("{} is {} here, but {} on {}", field.flag, text_of(mine), text_of(theirs),
                            theirs.value("host", "?"));
    if (!field.may_differ) return Error(std::move(text)).with_hint("start every node of a job with the same settings");
    warnings.push_back(text + (field.name == std::string("max_restarts") ? "; node 0's value is used"
                                                                         : "; the leading node's value is used"));
  }
  return warnings;
}

Result<void> keep_torchrun_out(store::Store& store, const Settings& settings, const std::string& place) {
  if (settings.backend == Settings::Backend::kEtcd) return {};
  const auto key = "torch.rendezvous." + settings.run_id;
  const auto mark = store.compare_set(key, "", kMark);
  if (!mark) return mark.error();
  if (*mark != kMark) return torchrun_is_here(place, key);
  if (settings.backend != Settings::Backend::kStatic) return {};
  const auto prefix = settings.run_id + "/torchelastic/";
  if (settings.node_rank == 0) {
    // The key of the answer that torchrun's other agents wait for; they cannot read it.
    store::Store::Keys keys;
    for (int rank = 1; rank < settings.max_nodes; ++rank)
      keys.push_back(prefix + "assigned_ranks/" + std::to_string(rank));
    return keys.empty() ? Result<void>() : store.multi_set(keys, store::Store::Values(keys.size(), kMark));
  }
  const auto keys = store.list_keys();
  if (!keys) return keys.error();
  // torchrun's node 0 counts under "init/" the nodes that have arrived.
  for (const auto& each : {prefix + "role_info/0", std::string("init/")}) {
    if (std::find(keys->begin(), keys->end(), each) != keys->end()) return torchrun_is_here(place, each);
  }
  return {};
}

}  // namespace cohort::rendezvous
