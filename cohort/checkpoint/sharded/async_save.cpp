#include "cohort/checkpoint/sharded/async_save.h"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <future>
#include <map>
#include <thread>
#include <utility>

#include "cohort/base/log/log.h"
#include "cohort/checkpoint/sharded/save_session.h"
#include "cohort/checkpoint/sharded/snapshot.h"
#include "cohort/comm/error/exception_text.h"
#include "cohort/comm/group/subgroups.h"

namespace cohort::checkpoint {

struct AsyncSave::State {
  std::string folder;
  std::chrono::nanoseconds staging_time{0};
  std::atomic<bool> has_waiter{false};
  std::thread thread;
  std::shared_future<void> finished;

  bool is_done() const {
    return !finished.valid() || finished.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
};

namespace {

// State that is kept from save to save. The thread that calls async_save uses it; while a save is in flight, its thread uses the
// snapshot.
struct AsyncSaver {
  std::shared_ptr<AsyncSave::State> in_flight;
  detail::Snapshot snapshot;
  // The groups over which ranks finish the saves of a group.
  std::map<c10d::ProcessGroup*, std::pair<c10::weak_intrusive_ptr<c10d::ProcessGroup>, Group>> groups;
};

AsyncSaver& saver() {
  static auto* const the_saver = new AsyncSaver;  // never destroyed: a thread may use it until the process ends
  return *the_saver;
}

void warn_if_unseen(const AsyncSave::State& state) {
  if (state.has_waiter.load()) return;
  try {
    state.finished.get();
  } catch (const std::exception& error) {
    base::log_warning("an asynchronous save failed, and nobody waited for it: " + comm::text_of(error));
  }
}

// Blocks until the previous save has ended.
void end_previous() {
  const std::shared_ptr<AsyncSave::State> previous = std::exchange(saver().in_flight, nullptr);
  if (!previous) return;
  previous->thread.join();
  warn_if_unseen(*previous);
}

// Collective at the first save of a group. A group of its own, because training may be in the middle of operations on `group`.
Group finishing_group(const Group& group) {
  if (!group) return {};
  auto& groups = saver().groups;
  const auto known = groups.find(group.get());
  if (known != groups.end() && !known->second.first.expired()) return known->second.second;
  Group own = new_group(get_process_group_ranks(group), {.backend = "gloo",
                                                         .group_desc = "asynchronous checkpoints",
                                                         .use_local_synchronization = true,
                                                         .sort_ranks = false});
  groups.insert_or_assign(group.get(), std::pair(c10::weak_intrusive_ptr<c10d::ProcessGroup>(group), own));
  return own;
}

std::string previous_problem(const AsyncSaveOptions& options) {
  const auto& previous = saver().in_flight;
  if (options.wait_for_previous || !previous || previous->is_done()) return "";
  return "the save of \"" + previous->folder +
         "\" has not ended yet\n  hint: save less often, or let wait_for_previous make training wait";
}

void copy_shards(const detail::SaveSession& session, const ShardedStateDict& state) {
  ShardedStateDict parts;
  for (const files::PlannedWrite& write : session.writes()) {
    const auto& item = state[write.item];
    parts.insert(item.key(), item.value());
  }
  saver().snapshot.take(parts);
}

void finish_in_thread(AsyncSave::State& state, std::unique_ptr<detail::SaveSession> session, const Group& group,
                      const comm::StepResult& copied) {
  auto promise = std::make_shared<std::promise<void>>();
  state.finished = promise->get_future().share();
  state.thread = std::thread([session = std::move(session), group, copied, promise]() mutable {
    std::exception_ptr failure;
    try {
      const auto data_of = [](size_t i) {
        return static_cast<const char*>(saver().snapshot.state()[i].value().tensor.const_data_ptr());
      };
      const auto written = copied ? session->write(data_of) : copied;
      session->finish(comm::RankExchange(group), written);
    } catch (...) {
      failure = std::current_exception();
    }
    session.reset();  // removes the files of a failed save before it is reported
    failure ? promise->set_exception(failure) : promise->set_value();
  });
}

}  // namespace

void AsyncSave::wait() {
  state_->has_waiter = true;
  state_->finished.get();
}

bool AsyncSave::done() const { return state_->is_done(); }

std::chrono::nanoseconds AsyncSave::staging_time() const { return state_->staging_time; }

AsyncSave async_save(const ShardedStateDict& state, const std::string& folder, const AsyncSaveOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto ranks = detail::ranks_of(options.process_group, options.no_dist);
  const Group finishing = finishing_group(ranks.group());
  static const bool ends_at_exit = std::atexit(end_previous) == 0;
  static_cast<void>(ends_at_exit);
  auto session = std::make_unique<detail::SaveSession>("async_save", folder, options);
  if (options.wait_for_previous) end_previous();
  session->plan(ranks, state, previous_problem(options));
  end_previous();
  auto save = std::make_shared<AsyncSave::State>();
  save->folder = folder;
  const auto copied = comm::attempt([&] {
    copy_shards(*session, state);
    return std::string();
  });
  save->staging_time = std::chrono::steady_clock::now() - begin;
  finish_in_thread(*save, std::move(session), finishing, copied);
  saver().in_flight = save;
  return AsyncSave(save);
}

}  // namespace cohort::checkpoint
