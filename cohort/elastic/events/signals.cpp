#include "cohort/elastic/events/signals.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "cohort/base/text/text.h"

namespace cohort::elastic {

using base::Error;
using base::Result;

namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Result<std::vector<int>> parse_signals(const std::string& text) {
  std::vector<int> signals;
  for (const std::string& part : base::split(text, ',')) {
    const std::string name = base::trim(part);
    if (name.empty()) continue;
    const auto number = base::signal_number(name);
    if (!number) {
      const std::vector<std::string> usual = {"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"};
      return Error(fmt::format("--signals-to-handle: \"{}\" is not a signal{}", name, base::did_you_mean(name, usual)));
    }
    if (*number == SIGKILL || *number == SIGSTOP) {
      return Error(fmt::format("--signals-to-handle: no process can handle {}", base::signal_name(*number)));
    }
    signals.push_back(*number);
  }
  return signals;
}

Result<SignalSource> SignalSource::create(const std::vector<int>& signals) {
  SignalSource source;
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    if (signal == SIGHUP && is_ignored(signal)) continue;
    sigaddset(&set, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, &source.mask_before_);
  source.fd_ = base::Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!source.fd_) return Error(fmt::format("signalfd: {}", base::errno_text(errno)));
  return source;
}

SignalSource::~SignalSource() {
  // Drops the signals that still wait, so that they do not end this process now.
  while (fd_ && next()) {
  }
  if (fd_) ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

std::optional<int> SignalSource::next() {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace cohort::elastic
