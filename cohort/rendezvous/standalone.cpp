#include "cohort/rendezvous/standalone.h"

#include <unistd.h>

#include "cohort/base/system/host.h"
#include "cohort/rendezvous/rounds/event_queue.h"
#include "cohort/rendezvous/worker_store.h"

namespace cohort::rendezvous {
namespace {

class Standalone final : public Rendezvous {
 public:
  explicit Standalone(const Settings& settings) : settings_(settings) {}

  base::Result<void> begin_round() {
    const bool is_v6 = settings_.family == base::IpFamily::kV6;
    const std::string address = is_v6 ? "::1" : "127.0.0.1";
    auto workers = WorkerStore::open(address, settings_.family);
    if (!workers) return workers.error();
    Round round;
    round.job = job_;
    round.number = number_;
    round.restart_count = restart_count_;
    round.max_restarts = settings_.max_restarts;
    round.nodes = {{base::host_name(), settings_.local_address.empty() ? address : settings_.local_address, getpid(),
                    settings_.local_world_size, settings_.role}};
    round.store_address = address;
    round.store_port = workers->port();
    round.agent_hosts_store = workers->is_hosted();
    workers_ = std::move(*workers);
    is_running_ = true;
    events_.push(std::move(round));
    return {};
  }

  int fd() const override { return events_.fd(); }
  std::optional<Event> next_event() override { return events_.pop(); }

  void report_success() override { end_round(RoundOver::Reason::kFinished, "every worker has ended with 0", true); }
  void report_failure(const std::string& why, bool may_restart) override {
    const bool job_ends = !may_restart || restart_count_ >= settings_.max_restarts;
    if (end_round(RoundOver::Reason::kWorkerFailed, why, job_ends)) ++restart_count_;
  }
  void join_next() override {
    if (is_running_ || has_ended_) return;
    ++number_;
    if (auto begun = begin_round(); !begun) {
      has_ended_ = true;
      events_.push(begun.error());
    }
  }
  void leave(const std::string& why) override { end_round(RoundOver::Reason::kNodeLeft, why, true); }

 private:
  bool end_round(RoundOver::Reason reason, const std::string& why, bool job_ends) {
    if (!is_running_) return false;
    is_running_ = false;
    has_ended_ = job_ends;
    events_.push(RoundOver{reason, why, 0, job_ends});
    return true;
  }

  const Settings settings_;
  const std::string job_ = random_id();
  EventQueue events_;
  WorkerStore workers_;
  int number_ = 0;
  int restart_count_ = 0;
  bool is_running_ = false;
  bool has_ended_ = false;
};

}  // namespace

base::Result<std::unique_ptr<Rendezvous>> start_standalone(const Settings& settings) {
  auto standalone = std::make_unique<Standalone>(settings);
  if (auto begun = standalone->begin_round(); !begun) return begun.error();
  return std::unique_ptr<Rendezvous>(std::move(standalone));
}

}  // namespace cohort::rendezvous
