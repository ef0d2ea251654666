#include "cohort/snapshot/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "cohort/base/text/text.h"

namespace cohort::snapshot {

using base::Error;
using base::Result;

namespace {

/// The number of ranks named in a message.
constexpr size_t kMostNamed = 16;

bool is_of(const StoredVersion& held, const Choice& choice) {
  return held.version.step == choice.step && held.version.world_size == choice.world_size;
}

bool has_shared(const std::vector<StoredVersion>& all, const Choice& choice) {
  return std::any_of(all.begin(), all.end(),
                     [&](const StoredVersion& held) { return is_of(held, choice) && held.version.shared_total > 0; });
}

/// Returns "" if all ranks can go on from it.
std::string obstacle(const std::vector<StoredVersion>& all, const Choice& choice, int world_size) {
  std::set<int> ranks;
  std::set<uint64_t> layouts;
  bool suits = true;
  for (const StoredVersion& held : all) {
    if (!is_of(held, choice)) continue;
    ranks.insert(held.version.rank);
    layouts.insert(held.version.shared_layout);
    suits = suits && held.version.suits_other_worlds != 0;
  }
  if (choice.world_size != world_size && !suits) {
    return fmt::format("the snapshot of step {} is sharded over {} ranks, and this run has {}", choice.step,
                       choice.world_size, world_size);
  }
  std::vector<int> missing;
  for (int rank = 0; rank < choice.world_size; ++rank) {
    if (!ranks.contains(rank)) missing.push_back(rank);
  }
  // The replicated bytes of other ranks are enough for another number of ranks.
  if (!missing.empty() && choice.world_size == world_size) {
    const std::string whose =
        missing.size() > kMostNamed ? fmt::format("{} ranks", missing.size()) : base::ranks_in_words(missing);
    return fmt::format("the snapshot of step {} lacks the state of {}", choice.step, whose);
  }
  if (layouts.size() > 1) {
    return fmt::format("in the snapshot of step {} the replicated state differs between ranks", choice.step);
  }
  if (has_shared(all, choice) && find_shared(all, choice, 0).empty()) {
    return fmt::format("no node has the complete replicated state of step {}", choice.step);
  }
  return "";
}

}  // namespace

std::optional<Choice> choose(const std::vector<StoredVersion>& all, int world_size, std::string* why_not) {
  why_not->clear();
  // The newest version first; of one step, the version of a run with the current number of ranks.
  const auto comes_first = [world_size](const std::pair<int64_t, int>& a, const std::pair<int64_t, int>& b) {
    const auto rest = [&](const auto& c) { return std::pair(c.second != world_size, c.second); };
    return a.first != b.first ? a.first > b.first : rest(a) < rest(b);
  };
  std::set<std::pair<int64_t, int>, decltype(comes_first)> candidates(comes_first);
  for (const StoredVersion& held : all) candidates.insert({held.version.step, held.version.world_size});
  for (const auto& [step, ranks] : candidates) {
    const Choice choice{step, ranks};
    const std::string why = obstacle(all, choice, world_size);
    if (why.empty()) return choice;
    if (why_not->empty()) *why_not = why;
  }
  return std::nullopt;
}

const StoredVersion* find_own(const std::vector<StoredVersion>& all, const Choice& choice, int rank, int node) {
  const StoredVersion* best = nullptr;
  const auto distance = [node](const StoredVersion& held) { return std::pair(held.node != node, held.is_copy); };
  for (const StoredVersion& held : all) {
    if (!is_of(held, choice) || held.version.rank != rank) continue;
    if (!best || distance(held) < distance(*best)) best = &held;
  }
  return best;
}

std::vector<const StoredVersion*> find_shared(const std::vector<StoredVersion>& all, const Choice& choice, int node) {
  // Grouped by node, and by the ranks that shared the bytes there.
  std::map<std::pair<int, int>, std::map<int, const StoredVersion*>> groups;
  for (const StoredVersion& held : all) {
    if (!is_of(held, choice) || held.is_copy) continue;
    groups[{held.node, held.version.first_rank}][held.version.rank] = &held;
  }
  std::vector<const StoredVersion*> best;
  for (const auto& [place, ranks] : groups) {
    if (ranks.size() != static_cast<size_t>(ranks.begin()->second->version.local_world_size)) continue;
    if (!best.empty() && place.first != node) continue;
    best.clear();
    for (const auto& [rank, held] : ranks) best.push_back(held);
  }
  return best;
}

std::string list_in_text(const std::vector<StoredVersion>& all) {
  std::string text;
  for (const StoredVersion& held : all) {
    const Version& g = held.version;
    text += fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}\n", held.id, held.size, g.step, g.world_size, g.rank,
                        g.first_rank, g.local_world_size, g.suits_other_worlds, g.num_meta_bytes, g.num_own_bytes,
                        g.shared_total, g.shared_begin, g.num_shared_bytes, static_cast<int64_t>(g.shared_layout));
  }
  return text;
}

Result<std::vector<StoredVersion>> parse_list(const std::string& text, int node) {
  std::vector<StoredVersion> all;
  for (const std::string& line : base::split(text, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string> words = base::split(line, ' ');
    std::vector<int64_t> numbers;
    for (size_t i = 1; i < words.size(); ++i) {
      if (const auto number = base::parse_int(words[i])) numbers.push_back(*number);
    }
    const auto is_small = [](int64_t number) { return number >= 0 && number <= INT32_MAX; };
    if (words.size() != 14 || numbers.size() != 13 || numbers[0] < 0 ||
        !std::all_of(numbers.begin() + 2, numbers.begin() + 7, is_small)) {
      return Error("a node's list of snapshots is not understood: " + line);
    }
    const auto small = [&](size_t i) { return static_cast<int32_t>(numbers[i]); };
    const auto large = [&](size_t i) { return static_cast<uint64_t>(numbers[i]); };
    all.push_back({.node = node,
                   .id = words[0],
                   .is_copy = is_copy_id(words[0]),
                   .size = large(0),
                   .version = {.step = numbers[1],
                               .world_size = small(2),
                               .rank = small(3),
                               .first_rank = small(4),
                               .local_world_size = small(5),
                               .suits_other_worlds = small(6),
                               .num_meta_bytes = large(7),
                               .num_own_bytes = large(8),
                               .shared_total = large(9),
                               .shared_begin = large(10),
                               .num_shared_bytes = large(11),
                               .shared_layout = large(12)}});
    const auto parts = parts_of(all.back().version);
    if (!parts || (all.back().is_copy ? parts->shared : parts->end) > all.back().size) {
      return Error("a node's list of snapshots is not understood: " + line);
    }
  }
  return all;
}

std::string id_of(int rank, int slot) { return fmt::format("{}/{}", rank, slot); }
std::string copy_id(int rank, int slot) { return fmt::format("copy/{}/{}", rank, slot); }
bool is_copy_id(const std::string& id) { return id.starts_with("copy/"); }

}  // namespace cohort::snapshot
