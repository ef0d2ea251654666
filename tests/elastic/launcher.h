/// A launcher under test, as a process with its output read along. POSIX shell scripts are its workers.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "cohort/base/net/port.h"
#include "cohort/base/process/process.h"
#include "cohort/base/system/env.h"

namespace cohort::elastic {

using Words = std::vector<std::string>;

inline constexpr std::chrono::seconds kHangLimit{60};

inline std::string launcher_path() { return base::get_env("COHORT_BINARY_DIR").value_or("build") + "/bin/cohort"; }

/// The command line of a launcher with these flags and words.
inline Words run_words(Words flags) {
  flags.insert(flags.begin(), {launcher_path(), "run"});
  return flags;
}

/// A running launcher, with what it has printed so far.
class Launcher {
 public:
  /// `script` is the workers' shell script.
  Launcher(Words flags, const std::string& script) : process_(start(run_words(with_script(flags, script)))) {}
  explicit Launcher(const Words& command) : process_(start(command)) {}

  pid_t pid() const { return process_.pid(); }
  void signal(int signal_number) { process_.signal(signal_number); }
  const std::string& output() const { return output_; }
  const std::string& errors() const { return errors_; }

  void wait_for_output(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      if (!pump()) throw std::runtime_error("\"" + text + "\" did not come; stdout: " + output_ + "stderr: " + errors_);
    }
  }

  void wait_for_errors(const std::string& text) {
    while (errors_.find(text) == std::string::npos) {
      if (!pump()) throw std::runtime_error("\"" + text + "\" did not come; stdout: " + output_ + "stderr: " + errors_);
    }
  }

  void clear_output() { output_.clear(); }

  /// The number after `word` in the output, which must be complete.
  int number_after(const std::string& word) const {
    return std::stoi(output_.substr(output_.find(word) + word.size()));
  }

  /// Exit code, or minus the signal's number.
  int finish() {
    while (pump()) {
    }
    const auto status = process_.wait_for(kHangLimit);
    return status ? status->returncode() : throw std::runtime_error("the launcher hangs");
  }

 private:
  static Words with_script(Words flags, const std::string& script) {
    flags.insert(flags.end(), {"--no-python", "sh", "-c", script});
    return flags;
  }

  static base::Process start(const Words& command) {
    std::map<std::string, std::string> environment = base::environment();
    environment["OMP_NUM_THREADS"] = "1";
    return base::Process::start({.arguments = command,
                                 .environment = environment,
                                 .standard_output = base::Stream::pipe(),
                                 .standard_error = base::Stream::pipe()})
        .value();
  }

  /// Takes in what comes next; false at the end of both streams.
  bool pump() {
    base::Fd* fds[2] = {&process_.standard_output(), &process_.standard_error()};
    std::string* texts[2] = {&output_, &errors_};
    pollfd entries[2] = {{fds[0]->get(), POLLIN, 0}, {fds[1]->get(), POLLIN, 0}};
    if (!*fds[0] && !*fds[1]) return false;
    if (::poll(entries, 2, static_cast<int>(std::chrono::milliseconds(kHangLimit).count())) <= 0) {
      throw std::runtime_error("no output; so far: " + output_ + errors_);
    }
    for (int i = 0; i < 2; ++i) {
      if (!entries[i].revents) continue;
      char buffer[4096];
      const ssize_t count = ::read(fds[i]->get(), buffer, sizeof buffer);
      if (count <= 0) fds[i]->reset();
      if (count > 0) texts[i]->append(buffer, static_cast<size_t>(count));
    }
    return true;
  }

  base::Process process_;
  std::string output_;
  std::string errors_;
};

inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

/// The distinct words after `name=` in the text.
inline std::set<std::string> values_of(const std::string& text, const std::string& name) {
  std::set<std::string> values;
  for (size_t at = 0; (at = text.find(name + "=", at)) != std::string::npos;) {
    at += name.size() + 1;
    values.insert(text.substr(at, text.find_first_of(" \n", at) - at));
  }
  return values;
}

/// Nobody else is given the port while this process lives.
inline std::string endpoint() {
  static std::vector<base::PortReservation> kept;
  kept.push_back(base::reserve_port().value());
  return "127.0.0.1:" + std::to_string(kept.back().port);
}

/// Flags of one node of an elastic job on this host.
inline Words node(const std::string& endpoint, const std::string& num_nodes, Words more = {}) {
  Words flags = {"--nnodes=" + num_nodes, "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint, "--rdzv-id=job",
                 "--rdzv-conf=keep_alive_interval=0.2,keep_alive_max_attempt=25,last_call_timeout=0.3"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace cohort::elastic
