#include "cohort/comm/start/failed_connect.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

#include "cohort/base/text/text.h"
#include "cohort/comm/watch/peers.h"
#include "cohort/job/gloo_key.h"

namespace cohort::comm {
namespace {

using base::Failure;

constexpr std::chrono::milliseconds kLookPause{5};

std::vector<int> ranks_without_gloo_key(const FailedConnect& failure) {
  std::vector<int> absent;
  try {
    for (size_t i = 0; i < failure.ranks.size(); ++i) {
      if (!failure.store->check({job::gloo_key(static_cast<int>(i))})) absent.push_back(failure.ranks[i]);
    }
  } catch (const std::exception&) {
    absent.clear();  // the store has ended, so nothing is known
  }
  return absent;
}

bool is_in(const FailedConnect& failure, int rank) {
  return std::find(failure.ranks.begin(), failure.ranks.end(), rank) != failure.ranks.end();
}

// Returns members whose process is gone; or rank 0 if a connection broke, because the store ends with it.
std::vector<int> ended_ranks(const FailedConnect& failure, const Peers& peers) {
  const bool broke = failure.cause.kind != Failure::Kind::kTimeout;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(broke ? 500 : 0);
  for (;;) {
    // Rank 0 only: members may have ended because of it.
    if (broke && !is_in(failure, 0) && peers.is_gone(0)) return {0};
    auto ended = peers.gone_ranks();
    std::erase_if(ended, [&](int rank) { return !is_in(failure, rank); });
    if (!ended.empty() || std::chrono::steady_clock::now() >= end) return ended;
    std::this_thread::sleep_for(kLookPause);
  }
}

}  // namespace

Failure explain_failed_connect(const FailedConnect& failed, const Peers& peers) {
  const auto ended = ended_ranks(failed, peers);
  const auto absent = ended.empty() ? ranks_without_gloo_key(failed) : std::vector<int>{};
  Failure failure{.kind = ended.empty() ? failed.cause.kind : Failure::Kind::kLostRank, .missing = absent};
  failure.what = fmt::format("group \"{}\" of {} cannot connect", failed.group, base::ranks_in_words(failed.ranks));
  for (const int rank : ended) failure.causes.push_back(peers.describe(rank) + " has ended");
  if (!absent.empty()) failure.causes.push_back(base::ranks_in_words(absent) + " never arrived");
  failure.causes.push_back(base::first_line(failed.cause.causes.front()));
  if (ended == std::vector<int>{0} && !is_in(failed, 0)) {
    failure.hint = "let rank 0 wait for the others with barrier(): it hosts the store, which groups need to connect";
  } else if (!ended.empty()) {
    failure.hint = fmt::format("look at the output of {} for the reason", base::ranks_in_words(ended));
  } else if (absent.empty()) {
    failure.hint = "a rank ended or its address cannot be reached; look at the other ranks' output";
  } else {
    failure.hint = fmt::format("see whether {} ended, or created other groups before this one; if not, raise {}",
                               base::ranks_in_words(absent), failed.option);
  }
  return failure;
}

}  // namespace cohort::comm
