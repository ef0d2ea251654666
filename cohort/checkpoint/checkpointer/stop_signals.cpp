#include "cohort/checkpoint/checkpointer/stop_signals.h"

#include <c10/util/Exception.h>

#include "cohort/base/text/text.h"

namespace cohort::checkpoint {
namespace {

volatile std::sig_atomic_t first_signal = 0;

void notice_signal(int signal) {
  if (first_signal == 0) first_signal = signal;
}

}  // namespace

StopSignals::StopSignals(const std::vector<int>& signals) {
  first_signal = 0;
  for (const int signal : signals) {
    struct sigaction action {
    }, before{};
    action.sa_handler = notice_signal;
    // A second signal has its default action: the user does not want to wait.
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    if (::sigaction(signal, &action, &before) != 0) {
      restore();
      C10_THROW_ERROR(ValueError, c10::str("[cohort] Checkpointer: no process can handle ", base::signal_name(signal),
                                           "\n  hint: use signals such as SIGTERM, SIGINT or SIGUSR1"));
    }
    before_.emplace_back(signal, before);
  }
}

StopSignals::~StopSignals() { restore(); }

void StopSignals::restore() {
  for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
  before_.clear();
}

int StopSignals::seen() { return first_signal; }

}  // namespace cohort::checkpoint
