#include "tests/support/test_process.h"

#include <csignal>
#include <stdexcept>

namespace cohort::test {
namespace {

template <typename Value>
Value taken(base::Result<Value> result) {
  if (!result) throw std::runtime_error(result.error().describe());
  return std::move(*result);
}

}  // namespace

TestProcess::TestProcess(const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment, bool loads_anew) {
  if (const auto server = loads_anew ? std::nullopt : own_server(environment)) {
    base::Pipe out = taken(base::make_pipe()), err = taken(base::make_pipe());
    process_ = taken(ServedProcess::start(*server, {.arguments = arguments,
                                                    .environment = environment,
                                                    .output_fd = out.write_end.get(),
                                                    .error_fd = err.write_end.get()}));
    output = std::move(out.read_end);
    errors = std::move(err.read_end);
    return;
  }
  base::Process process = taken(base::Process::start({.arguments = arguments,
                                                      .environment = environment,
                                                      .standard_output = base::Stream::pipe(),
                                                      .standard_error = base::Stream::pipe()}));
  output = std::move(process.standard_output());
  errors = std::move(process.standard_error());
  process_ = std::move(process);
}

pid_t TestProcess::pid() const {
  if (const auto* const served = std::get_if<ServedProcess>(&process_)) return served->pid();
  return std::get<base::Process>(process_).pid();
}

int TestProcess::end_fd() const {
  if (const auto* const served = std::get_if<ServedProcess>(&process_)) return served->end_fd();
  return std::get<base::Process>(process_).pidfd();
}

std::optional<base::ExitStatus> TestProcess::poll() {
  if (auto* const served = std::get_if<ServedProcess>(&process_)) return served->poll();
  return std::get<base::Process>(process_).poll();
}

base::ExitStatus TestProcess::wait() {
  if (auto* const served = std::get_if<ServedProcess>(&process_)) return served->wait();
  return std::get<base::Process>(process_).wait();
}

void TestProcess::signal(int signal_number) {
  if (auto* const served = std::get_if<ServedProcess>(&process_)) return served->signal(signal_number);
  std::get<base::Process>(process_).signal(signal_number);
}

void TestProcess::kill() {
  if (auto* const served = std::get_if<ServedProcess>(&process_)) return served->signal(SIGKILL);
  std::get<base::Process>(process_).signal_group(SIGKILL);
}

void TestProcess::bury() {
  auto* const process = std::get_if<base::Process>(&process_);
  if (!process) return;  // the server has seen to it
  process->signal_group(SIGKILL);
  process->reap();
}

}  // namespace cohort::test
