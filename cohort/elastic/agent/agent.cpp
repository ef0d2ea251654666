#include "cohort/elastic/agent/agent.h"
#include "cohort/base/file/atomic_file.h"
#include "cohort/base/net/address.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "cohort/base/log/log.h"
#include "cohort/base/log/log_writer.h"
#include "cohort/base/system/deadline.h"
#include "cohort/base/system/env.h"
#include "cohort/base/system/host.h"
#include "cohort/base/text/text.h"
#include "cohort/elastic/plan/worker_plan.h"

namespace cohort::elastic {

using base::Error;
using base::Result;
using rendezvous::Event;
using rendezvous::Round;
using rendezvous::RoundOver;

namespace {

/// A worker that fails this early, in a way that will repeat, is not restarted.
constexpr std::chrono::seconds kStartTime{5};
constexpr std::chrono::milliseconds kLongestBackoff{60'000};

/// The longest time for which a message of another thread may wait for a stream that took nothing at first.
constexpr std::chrono::milliseconds kMessageInterval{1000};

/// The shell's exit codes for a program that cannot be executed or found; the dynamic loader's for a missing library.
bool cannot_have_started(const WorkerFailure& failure) {
  return failure.status.code == 126 || failure.status.code == 127;
}

/// Writes the root cause's error file to this launcher's own error file, if the launcher is itself a worker.
void pass_on_error_file(const WorkerFailure& root) {
  const std::string path = base::get_env("TORCHELASTIC_ERROR_FILE").value_or("");
  const Result<std::string> text = base::read_file(root.error_file);
  if (path.empty() || !text) return;
  if (Result<void> written = base::write_file_atomically(path, error_file_with_code(*text, root.status)); !written) {
    base::log_warning(written.error().describe());
  }
}

std::string node_in_words(const Round& round, int node_rank) {
  if (node_rank < 0 || node_rank >= static_cast<int>(round.nodes.size())) return "another node";
  return fmt::format("node {} ({})", node_rank, round.nodes[static_cast<size_t>(node_rank)].host);
}

std::string why_in_words(const Round& round, const RoundOver& over) {
  const bool is_own = over.reason == RoundOver::Reason::kNodeLost && over.node_rank == round.node_rank;
  if (!is_own) return over.why;
  return fmt::format("the other nodes lost this one, {} (it was stopped, cut off, or too busy): {}",
                     node_in_words(round, round.node_rank), over.why);
}

/// Returns "cannot start local rank 3: fork: Resource temporarily unavailable (EAGAIN)".
std::string first_and_last(const Error& error) {
  const Error* last = error.cause();
  while (last && last->cause()) last = last->cause();
  return last ? fmt::format("{}: {}", error.message(), last->message()) : error.message();
}

}  // namespace

Result<int> Agent::run() {
  Result<int> code = run_rounds();
  std::optional<std::chrono::milliseconds> limit;
  if (stop_signal_) limit = plan_.shutdown_timeout;
  tools_.consoles.finish(&tools_.signals, limit);
  return code;
}

Result<int> Agent::run_rounds() {
  answer_health_checks();
  begin("rendezvous");
  rendezvous::Settings settings = plan_.rendezvous;
  if (tools_.snapshot_server) settings.public_key = tools_.snapshot_server->public_key();
  Result<std::unique_ptr<rendezvous::Rendezvous>> joined = rendezvous::Rendezvous::start(settings);
  if (!joined) return joined.error();
  rendezvous_ = std::move(*joined);
  for (;;) {
    const std::optional<Event> event = next_event();
    if (!event) return stopped();
    Result<std::optional<int>> code = take(*event);
    if (!code) return code.error();
    if (*code) return **code;
  }
}

void Agent::begin(const char* state) {
  state_ = state;
  state_since_ = Clock::now();
}

void Agent::end_phase(const char* phase) {
  events_.phase_ended(round_, plan_.rendezvous, phase, Clock::now() - state_since_);
}

void Agent::answer_health_checks() {
  if (!plan_.health_check_port) return;
  Result<HealthCheck> check = HealthCheck::create(*plan_.health_check_port, [this] { return health(); });
  if (!check) {
    base::log_warning(
        Error(fmt::format("health checks (TORCHELASTIC_HEALTH_CHECK_PORT={}) are not answered; the job goes on",
                          *plan_.health_check_port))
            .caused_by(check.error())
            .describe());
    return;
  }
  health_check_.emplace(std::move(*check));
}

HealthState Agent::health() const {
  HealthState health{.state = state_, .round = round_.number, .restarts = round_.restart_count};
  if (!group_) return health;
  health.workers = group_->num_running();
  health.state = group_->state();
  health.is_well = !group_->is_stuck();
  return health;
}

void Agent::add_watches(std::vector<Watch>& watches) {
  if (health_check_) health_check_->add_watches(watches);
  tools_.consoles.add_watches(watches);
}

std::optional<Event> Agent::next_event() {
  if (news_) return std::exchange(news_, std::nullopt);
  for (;;) {
    if (std::optional<Event> event = rendezvous_->next_event()) return event;
    if (take_signal()) return std::nullopt;
    std::vector<Watch> watches;
    watches.push_back({rendezvous_->fd(), POLLIN, [] {}});
    watches.push_back({tools_.signals.fd(), POLLIN, [] {}});
    add_watches(watches);
    wait_for(watches, static_cast<int>(kMessageInterval.count()));
  }
}

bool Agent::take_signal() {
  while (const std::optional<int> signal = tools_.signals.next()) {
    if (std::find(plan_.signals.begin(), plan_.signals.end(), *signal) == plan_.signals.end()) continue;
    stop_signal_ = signal;
    return true;
  }
  return false;
}

Result<std::optional<int>> Agent::take(const Event& event) {
  if (const auto* round = std::get_if<Round>(&event)) return run_round(*round);
  if (const auto* over = std::get_if<RoundOver>(&event)) return end_round(*over);
  return std::get<Error>(event);
}

Result<std::optional<int>> Agent::run_round(const Round& round) {
  round_ = round;
  end_phase("rendezvous");
  is_cause_ = false;
  failures_.clear();
  base::log_info(fmt::format("round {}: node {} of {}, restart {} of {}, workers' store {}", round.number,
                             round.node_rank, round.nodes.size(), round.restart_count, round.max_restarts,
                             base::host_and_port(round.store_address, round.store_port)));
  Result<GroupResult> result = run_workers(round);
  tools_.guard.forget();
  begin("waiting for other nodes");
  if (!result) {
    rendezvous_->report_failure(fmt::format("{} could not start its workers: {}", node_in_words(round, round.node_rank),
                                            first_and_last(result.error())),
                                /*may_restart=*/false);
    return result.error();
  }
  failures_ = std::move(result->failures);
  for (const WorkerFailure& failure : failures_) events_.worker_ended(round, plan_.rendezvous, failure);
  if (result->signal) {
    stop_signal_ = result->signal;
    return std::optional<int>(stopped());
  }
  if (result->ok()) {
    events_.workers_succeeded(round, plan_.rendezvous);
    rendezvous_->report_success();
  }
  return std::optional<int>();
}

Result<GroupResult> Agent::run_workers(const Round& round) {
  Result<std::string> attempt = create_attempt_folder(tools_.folder, attempt_++, plan_.rendezvous.local_world_size);
  if (!attempt && attempt_ == 1) return no_log_folder(plan_.logs.folder, attempt.error());
  if (!attempt) {
    base::log_warning(Error("the workers start without log files")
                          .caused_by(no_log_folder(plan_.logs.folder, attempt.error()))
                          .describe());
    attempt = std::string();
  }
  const std::string timer_file = tools_.watchdog ? tools_.watchdog->path() : "";
  const Result<std::vector<WorkerSpec>> specs =
      plan_workers(plan_, round, {*attempt, timer_file, tools_.mark, open_snapshot_server(round)});
  if (!specs) return specs.error();
  WorkerGroup group(plan_, tools_, *attempt);
  if (tools_.watchdog) tools_.watchdog->forget();
  started_at_ = Clock::now();
  begin("starting");
  const Result<bool> started = start_workers(group, *specs);
  if (!started) return started.error();
  if (!*started) return GroupResult{.signal = stop_signal_};
  end_phase("start_workers");
  events_.workers_started(round, plan_.rendezvous);
  begin("running");
  group_ = &group;
  GroupResult result = supervise(group);
  group_ = nullptr;
  const Clock::duration stop_time = result.stop_time.value_or(std::chrono::milliseconds(0));
  events_.phase_ended(round, plan_.rendezvous, "run_workers", Clock::now() - state_since_ - stop_time);
  if (result.stop_time) events_.phase_ended(round, plan_.rendezvous, "stop_workers", stop_time);
  return result;
}

std::string Agent::open_snapshot_server(const Round& round) {
  if (!tools_.snapshot_server) return "";
  if (round.nodes.size() > 1) {
    const std::string& address = round.nodes[static_cast<size_t>(round.node_rank)].address;
    std::vector<std::string> public_keys;
    for (const rendezvous::Node& node : round.nodes) public_keys.push_back(node.public_key);
    if (Result<void> opened = tools_.snapshot_server->serve_nodes(address, public_keys); !opened) {
      base::log_warning(Error("other nodes cannot keep copies of snapshots here").caused_by(opened.error()).describe());
    }
  }
  return tools_.snapshot_server->name();
}

Result<bool> Agent::start_workers(WorkerGroup& group, const std::vector<WorkerSpec>& specs) {
  const Result<bool> started = group.start(specs, [this] { return take_signal(); });
  if (started && !*started) {
    base::log_warning(
        fmt::format("received {} while starting the workers; stopping", base::signal_name(*stop_signal_)));
  }
  return started;
}

GroupResult Agent::supervise(WorkerGroup& group) {
  return group.supervise(
      {.news_fd = rendezvous_->fd(),
       .read_news = [this]() -> std::optional<std::string> {
         if (std::optional<Event> event = rendezvous_->next_event()) news_ = std::move(event);
         if (!news_) return std::nullopt;
         if (const auto* over = std::get_if<RoundOver>(&*news_)) return why_in_words(round_, *over);
         if (const auto* error = std::get_if<Error>(&*news_)) return error->message();
         return std::nullopt;
       },
       .when_failed = [this](const WorkerFailure& failure) { report_failure(failure); },
       .when_overrun = [this](const Overrun& overrun) { events_.block_overran(round_, plan_.rendezvous, overrun); },
       .add_watches = [this](std::vector<Watch>& watches) { add_watches(watches); }});
}

void Agent::report_failure(const WorkerFailure& failure) {
  is_cause_ = true;
  const auto age = Clock::now() - started_at_;
  const bool is_start_failure = cannot_have_started(failure) && age < kStartTime;
  const bool is_repeated = repeated_failure_.is_it(failure, age);
  if ((is_start_failure || is_repeated) && round_.restart_count < round_.max_restarts) {
    base::log_warning(
        is_repeated ? "the workers have ended twice with the same error of the program, soon after their start; "
                      "not restarting them, as they would end the same way again"
                    : "a worker's program cannot start here; not restarting it, as it would end the same way again");
  }
  const std::string own_words = failure.error_file == "<N/A>" ? failure.overrun : base::first_line(failure.message);
  const std::string said = own_words.empty() ? "" : ": " + own_words;
  rendezvous_->report_failure(fmt::format("rank {} (pid {}) on {} failed with {}{}", failure.rank, failure.pid,
                                          node_in_words(round_, round_.node_rank), failure.status.describe(), said),
                              /*may_restart=*/!is_start_failure && !is_repeated && !failure.is_stuck);
}

Result<std::optional<int>> Agent::end_round(const RoundOver& over) {
  using Reason = RoundOver::Reason;
  if (over.job_ends) {
    const bool is_success = over.reason == Reason::kFinished;
    if (is_success) end_phase("exit_barrier");
    events_.agent_ended(round_, plan_.rendezvous, is_success, over.why);
    return std::optional<int>(is_success ? 0 : failed(over));
  }
  if (over.reason == Reason::kWorkerFailed) {
    base::log_warning(fmt::format("restarting the workers, restart {} of {}: {}", round_.restart_count + 1,
                                  round_.max_restarts, over.why));
    if (!back_off()) return std::optional<int>(stopped());
  } else {
    base::log_warning(fmt::format("restarting the workers (this does not count against --max-restarts): {}",
                                  why_in_words(round_, over)));
  }
  begin("rendezvous");
  rendezvous_->join_next();
  return std::optional<int>();
}

bool Agent::back_off() {
  if (plan_.restart_backoff.count() == 0) return true;
  const auto factor = 1LL << std::min(round_.restart_count, 20);
  const std::chrono::milliseconds time = std::min(kLongestBackoff, {plan_.restart_backoff * factor});
  base::log_info(fmt::format("waiting for {} before the restart", base::format_duration(time)));
  begin("waiting to restart");
  const auto end = base::deadline_after(time);
  while (!take_signal()) {
    const int left = base::milliseconds_until(end);
    if (left == 0) return true;
    std::vector<Watch> watches;
    watches.push_back({tools_.signals.fd(), POLLIN, [] {}});
    add_watches(watches);
    wait_for(watches, left);
  }
  return false;
}

int Agent::stopped() {
  const std::string by = base::signal_name(*stop_signal_);
  rendezvous_->leave(fmt::format("it was stopped by {}", by));
  base::log_error(fmt::format("{} was stopped by {}", plan_.program.name, by));
  if (is_cause_) print_failures();
  return 1;
}

int Agent::failed(const RoundOver& over) {
  if (is_cause_) {
    print_failures();
    return 1;
  }
  // Workers that end because this node stopped them are not the cause.
  const Error error(fmt::format("the job has failed: {}", over.why));
  const bool is_elsewhere = over.node_rank >= 0 && over.node_rank != round_.node_rank;
  const std::string hint = "see what the launcher printed on " + node_in_words(round_, over.node_rank);
  base::log_error((is_elsewhere ? Error(error).with_hint(hint) : error).describe());
  return 1;
}

void Agent::print_failures() const {
  if (failures_.empty()) return;
  pass_on_error_file(root_cause(failures_));
  const std::string text = format_failure_report(plan_.program.name, failures_, base::host_name());
  base::write_log_lines(text + "\n");
}

}  // namespace cohort::elastic
