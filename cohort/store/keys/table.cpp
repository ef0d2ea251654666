#include "cohort/store/keys/table.h"

#include <fmt/format.h>
#include <algorithm>

#include "cohort/base/text/text.h"

namespace cohort::store {

void Table::set(const std::string& key, std::string value) {
  const auto [place, is_new] = values_.try_emplace(key);
  num_bytes_ += is_new ? size_of(key, value) : value.size() - place->second.size();
  place->second = std::move(value);
  arrived(key);
}

const std::string* Table::get(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

base::Result<int64_t> sum_of(const std::string& key, const std::string* before, int64_t number) {
  const auto number_before = before ? base::parse_int(*before) : 0;
  int64_t sum = 0;
  if (!number_before || __builtin_add_overflow(static_cast<int64_t>(*number_before), number, &sum)) {
    return base::Error(fmt::format("cannot add {} to the value of key \"{}\", \"{}\"", number, key,
                                   before ? before->substr(0, 40) : std::string()));
  }
  return sum;
}

base::Result<int64_t> Table::add(const std::string& key, int64_t number) {
  const auto sum = sum_of(key, get(key), number);
  if (sum) set(key, std::to_string(*sum));
  return sum;
}

std::string Table::compare_set(const std::string& key, const std::string& expected, std::string desired) {
  const auto* const before = get(key);
  if (before ? *before == expected : expected.empty()) {
    set(key, desired);
    return desired;
  }
  return before ? *before : expected;
}

void Table::append(const std::string& key, const std::string& value) {
  const auto [place, is_new] = values_.try_emplace(key);
  num_bytes_ += is_new ? size_of(key, value) : value.size();
  place->second += value;
  arrived(key);
}

bool Table::delete_key(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  num_bytes_ -= size_of(key, found->second);
  values_.erase(found);
  return true;
}

std::vector<std::string> Table::list_keys() const {
  std::vector<std::string> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

void Table::queue_push(const std::string& key, std::string value) {
  num_bytes_ += size_of(key, value);
  queues_[key].push_back(std::move(value));
  wake_one(key);
}

std::optional<std::string> Table::queue_pop(const std::string& key) {
  const auto found = queues_.find(key);
  if (found == queues_.end()) return std::nullopt;
  auto value = std::move(found->second.front());
  num_bytes_ -= size_of(key, value);
  found->second.pop_front();
  if (found->second.empty()) queues_.erase(found);
  return value;
}

size_t Table::queue_len(const std::string& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.size();
}

bool Table::has(const std::string& key) const { return values_.count(key) > 0 || queues_.count(key) > 0; }

bool Table::check(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](const auto& key) { return has(key); });
}

bool Table::wait(Waiter waiter, const std::vector<std::string>& keys) {
  stop_waiting(waiter);
  Waiting waiting;
  for (const auto& key : keys) {
    if (!has(key)) waiting.keys.insert(key);
  }
  if (waiting.keys.empty()) return true;
  for (const auto& key : waiting.keys) {
    num_bytes_ += size_of(key);
    waiters_of_[key].push_back(waiter);
  }
  waiting_.emplace(waiter, std::move(waiting));
  return false;
}

base::Result<bool> Table::barrier(Waiter waiter, const std::string& key, int64_t world_size) {
  stop_waiting(waiter);
  const auto count = add(key, 1);
  if (!count) return count.error();
  if (*count < world_size) {
    barriers_[key].push_back(waiter);
    waiting_[waiter].barrier = key;
    return false;
  }
  const auto found = barriers_.find(key);
  if (found == barriers_.end()) return true;
  const auto others = std::move(found->second);
  barriers_.erase(found);
  for (const auto other : others) {
    waiting_.erase(other);
    when_ready_(other);
  }
  return true;
}

void Table::stop_waiting(Waiter waiter) {
  const auto found = waiting_.find(waiter);
  if (found == waiting_.end()) return;
  const auto waiting = std::move(found->second);
  waiting_.erase(found);
  for (const auto& key : waiting.keys) forget(key, waiter);
  const auto present = barriers_.find(waiting.barrier);
  if (present == barriers_.end()) return;
  std::erase(present->second, waiter);
  if (present->second.empty()) barriers_.erase(present);
}

void Table::forget(const std::string& key, Waiter waiter) {
  const auto found = waiters_of_.find(key);
  if (found == waiters_of_.end()) return;
  num_bytes_ -= size_of(key);
  std::erase(found->second, waiter);
  if (found->second.empty()) waiters_of_.erase(found);
}

bool Table::is_ready(Waiter waiter) const {
  const auto& keys = waiting_.at(waiter).keys;
  return std::all_of(keys.begin(), keys.end(), [this](const auto& key) { return has(key); });
}

void Table::arrived(const std::string& key) {
  const auto found = waiters_of_.find(key);
  if (found == waiters_of_.end()) return;
  const auto waiters = std::move(found->second);
  waiters_of_.erase(found);
  for (const auto waiter : waiters) {
    num_bytes_ -= size_of(key);
    waiting_.at(waiter).keys.erase(key);
    if (!is_ready(waiter)) continue;
    stop_waiting(waiter);
    when_ready_(waiter);
  }
}

// An entry of a queue wakes one waiter: the first that waits for nothing else.
void Table::wake_one(const std::string& key) {
  const auto found = waiters_of_.find(key);
  if (found == waiters_of_.end()) return;
  const auto& waiters = found->second;
  const auto ready = std::find_if(waiters.begin(), waiters.end(), [this](const auto each) { return is_ready(each); });
  if (ready == waiters.end()) return;
  const auto waiter = *ready;
  stop_waiting(waiter);
  when_ready_(waiter);
}

}  // namespace cohort::store
