#include "cohort/shm/transfer/matching.h"

#include <algorithm>
#include <set>
#include <utility>

namespace cohort::shm {

std::optional<SourcedMessage> Matching::take(int source, int32_t tag) {
  auto& waiting = messages_[source];
  const auto found =
      std::find_if(waiting.begin(), waiting.end(), [&](const Message& message) { return message.header.tag == tag; });
  if (found == waiting.end()) return {};
  SourcedMessage taken{source, std::move(*found)};
  waiting.erase(found);
  return taken;
}

std::optional<SourcedMessage> Matching::post(Wish* wish) {
  const int num_sources = static_cast<int>(messages_.size());
  if (wish->from != kAnySource) {
    if (auto taken = take(wish->from, wish->tag)) return taken;
  }
  for (int i = 0; wish->from == kAnySource && i < num_sources; ++i) {
    const int source = (first_source_ + i) % num_sources;
    if (auto taken = take(source, wish->tag)) {
      first_source_ = (source + 1) % num_sources;
      return taken;
    }
  }
  wishes_.push_back(wish);
  return {};
}

Wish* Matching::arrive(int source, const Message& message) {
  const auto found = std::find_if(wishes_.begin(), wishes_.end(), [&](const Wish* wish) {
    return wish->tag == message.header.tag && (wish->from == source || wish->from == kAnySource);
  });
  if (found == wishes_.end()) {
    messages_[source].push_back(message);
    return nullptr;
  }
  Wish* const wish = *found;
  wishes_.erase(found);
  if (wish->from == kAnySource) first_source_ = (source + 1) % static_cast<int>(messages_.size());
  return wish;
}

void Matching::withdraw(const Wish* wish) { std::erase(wishes_, wish); }

bool Matching::wishes_from(int source) const {
  return std::any_of(wishes_.begin(), wishes_.end(),
                     [&](const Wish* wish) { return wish->from == source || wish->from == kAnySource; });
}

std::optional<uint64_t> Matching::oldest_in_offer(int source) const {
  for (const auto& message : messages_[source]) {
    if (message.is_in_offer) return message.number;
  }
  return {};
}

void Matching::empty_offers(int source, const std::function<void(Message&)>& rescue) {
  for (auto& message : messages_[source]) {
    if (!message.is_in_offer) continue;
    rescue(message);
    message.is_in_offer = false;
  }
}

std::vector<int32_t> Matching::waiting_tags(int source) const {
  std::set<int32_t> tags;
  for (const auto& message : messages_[source]) tags.insert(message.header.tag);
  return {tags.begin(), tags.end()};
}

}  // namespace cohort::shm
