#include "cohort/comm/watch/reports.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <thread>

#include "cohort/base/system/env.h"

namespace cohort::comm {
namespace {

using job::Account;
using job::decode_failure;
using job::encode_failure;

constexpr size_t kMaxReportSize = 64 << 10;

std::string key(const char* kind, int rank) { return std::string("cohort/") + kind + "/" + std::to_string(rank); }

// Writes the failure's lines, an empty line, and the account.
std::string encode_report(const FailureReport& report) {
  return encode_failure(report.failure) + "\n" + report.account.encode();
}

FailureReport decode_report(const std::string& text) {
  const auto gap = text.find("\n\n");
  return {decode_failure(text), gap == std::string::npos ? job::Account{} : Account::decode(text.substr(gap + 2))};
}

}  // namespace

Reports::Reports(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<Peers> peers, int rank, int world_size)
    : store_(std::move(store)), peers_(std::move(peers)), rank_(rank), world_size_(world_size) {
  hosted_by_rank_0_ = base::get_env("TORCHELASTIC_USE_AGENT_STORE").value_or("") != "True";
}

// Checks before each call: for a store that has ended, LibTorch prints a page of stack frames per call, and it waits without
// limit for a store that is stopped. Rank 0 hosts the store, unless a launcher does.
bool Reports::store_lives() const {
  return !store_lost_ && !(hosted_by_rank_0_ && (peers_->is_gone(0) || peers_->is_stopped(0)));
}

std::optional<std::string> Reports::read(const char* kind, int rank) const {
  if (!store_lives()) return std::nullopt;
  try {
    if (!store_->check({key(kind, rank)})) return std::nullopt;
    const auto bytes = store_->get(key(kind, rank));
    if (bytes.size() > kMaxReportSize) return std::nullopt;
    return std::string(bytes.begin(), bytes.end());
  } catch (const std::exception&) {
    store_lost_ = true;
    return std::nullopt;
  }
}

void Reports::write(const char* kind, const std::string& text) const {
  if (!store_lives()) return;
  try {
    store_->set(key(kind, rank_), std::vector<uint8_t>(text.begin(), text.end()));
  } catch (const std::exception&) {
    // The store has ended with its host. The processes of this host can still be checked.
    store_lost_ = true;
  }
}

void Reports::publish_failure(const FailureReport& report) {
  if (!read("failed", rank_)) write("failed", encode_report(report));
}

std::optional<FailureReport> Reports::failure_of(int rank) const {
  const auto text = read("failed", rank);
  if (!text) return std::nullopt;
  return decode_report(*text);
}

void Reports::publish_waiting(const Account& account) { write("waiting", account.encode()); }

std::optional<job::Account> Reports::waiting_of(int rank) const {
  const auto text = read("waiting", rank);
  if (!text) return std::nullopt;
  return Account::decode(*text);
}

std::vector<int> Reports::lost_ranks() const {
  const auto lost = peers_->gone_ranks();
  // A rank that reported a failure before it ended is not the cause.
  std::vector<int> first;
  for (const int rank : lost) {
    if (!read("failed", rank)) first.push_back(rank);
  }
  return first.empty() ? lost : first;
}

bool Reports::knows_of_failure(int rank) const {
  // A rank that has published nothing will publish no failure.
  return !peers_->knows(rank) || peers_->is_gone(rank) || read("failed", rank).has_value();
}

void Reports::wait_until_others_know(std::chrono::milliseconds limit) const {
  if (rank_ != 0) return;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  int rank = 1;
  while (rank < world_size_ && store_lives() && std::chrono::steady_clock::now() < deadline) {
    if (knows_of_failure(rank)) {
      ++rank;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace cohort::comm
