#include "cohort/rendezvous/rounds/journal.h"

#include <algorithm>

#include "cohort/base/text/text.h"

namespace cohort::rendezvous {
namespace {

using base::Error;
using base::Result;

}  // namespace

Journal::Journal(std::unique_ptr<store::Store> store, std::string run_id)
    : store_(std::move(store)), run_id_(std::move(run_id)), prefix_("cohort/" + run_id_ + "/") {}

Result<int64_t> Journal::tell(const Notice& notice) {
  const auto text = to_text(notice);
  while (true) {
    if (!begun_ || begun_->text != text) {
      const auto count = store_->add(key("notices"), 1);
      if (!count) return count.error();
      begun_ = {text, *count - 1};
    }
    const auto place = begun_->place;
    if (notice.kind == Notice::Kind::kCome) {
      // Set before any node can know of this one, so that reading heartbeats never waits.
      if (auto set = store_->set(key("beat/", place), "0"); !set) return set.error();
    }
    const auto there = store_->compare_set(key("notice/", place), "", text);
    if (!there) return there.error();
    begun_.reset();
    if (*there == text) return place;
    // This node was so slow that the leader has closed the gap.
  }
}

Result<int64_t> Journal::num_notices() { return store_->add(key("notices"), 0); }

Result<std::vector<Notice>> Journal::notices_from(int64_t place) {
  const auto count = num_notices();
  if (!count) return count.error();
  store::Store::Keys keys;
  for (auto k = place; k < *count; ++k) keys.push_back(key("notice/", k));
  std::vector<Notice> notices;
  if (keys.empty()) return notices;
  const auto is_whole = store_->check(keys);
  if (!is_whole) return is_whole.error();
  for (size_t i = 0; !*is_whole && i < keys.size(); ++i) {
    const auto is_there = store_->check({keys[i]});
    if (!is_there) return is_there.error();
    if (!*is_there) keys.resize(i);
  }
  if (keys.empty()) return notices;
  const auto texts = store_->multi_get(keys);
  if (!texts) return texts.error();
  for (const auto& text : *texts) {
    auto notice = parse_notice(text);
    has_misread_ = !notice;
    if (!notice) return notice.error();
    notices.push_back(std::move(*notice));
  }
  return notices;
}

Result<void> Journal::close_gap(int64_t place) {
  const auto there = store_->compare_set(key("notice/", place), "", to_text(Notice{}));
  if (!there) return there.error();
  return {};
}

// A store reports a timeout as an error. Whether the key exists tells it from other errors.
Result<bool> Journal::wait(const std::string& key, Milliseconds timeout) {
  if (!store_->can_be_interrupted()) timeout = std::min(timeout, kLongestWait);
  const auto waited = store_->wait({key}, timeout);
  if (waited) return true;
  const auto is_there = store_->check({key});
  if (!is_there) return store::is_timeout(waited.error()) ? is_there.error() : waited.error();
  return *is_there;
}

Result<bool> Journal::wait_for_notice(int64_t place, Milliseconds timeout) {
  return wait(key("notice/", place), timeout);
}
Result<bool> Journal::wait_for_news(int64_t place, Milliseconds timeout) { return wait(key("news/", place), timeout); }

Result<News> Journal::news_at(int64_t place) {
  const auto text = store_->get(key("news/", place));
  if (!text) return text.error();
  auto news = parse_news(*text);
  has_misread_ = !news;
  return news;
}

Result<std::optional<News>> Journal::news_if_at(int64_t place) {
  const auto is_there = store_->check({key("news/", place)});
  if (!is_there) return is_there.error();
  if (!*is_there) return std::optional<News>();
  auto news = news_at(place);
  if (!news) return news.error();
  return std::optional(std::move(*news));
}

Result<bool> Journal::announce(int64_t place, const News& news) {
  const auto text = to_text(news);
  const auto there = store_->compare_set(key("news/", place), "", text);
  if (!there) return there.error();
  return *there == text;
}

Result<void> Journal::beat(NodeId id) {
  const auto count = store_->add(key("beat/", id), 1);
  if (!count) return count.error();
  return {};
}

Result<std::vector<std::string>> Journal::beats(const std::vector<NodeId>& ids) {
  if (ids.empty()) return std::vector<std::string>();
  store::Store::Keys keys;
  for (const auto id : ids) keys.push_back(key("beat/", id));
  return store_->multi_get(keys);
}

Result<void> Journal::set(const std::string& name, const std::string& value) { return store_->set(key(name), value); }

Result<std::optional<std::string>> Journal::get(const std::string& name, Milliseconds timeout) {
  const auto is_there = timeout.count() > 0 ? wait(key(name), timeout) : store_->check({key(name)});
  if (!is_there) return is_there.error();
  if (!*is_there) return std::optional<std::string>();
  auto value = store_->get(key(name));
  if (!value) return value.error();
  return std::optional(std::move(*value));
}

Result<std::string> Journal::set_once(const std::string& name, const std::string& value) {
  return store_->compare_set(key(name), "", value);
}

Result<std::unique_ptr<Journal>> Journal::clone() {
  auto store = store_->clone();
  if (!store) return store.error();
  return std::make_unique<Journal>(std::move(*store), run_id_);
}

}  // namespace cohort::rendezvous
