#include "cohort/base/system/process_state.h"

#include <signal.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

namespace cohort::base {

// Reads "pid (name) state ...". The name may have spaces and brackets, so fields are counted from the last bracket.
ProcessState read_process_state(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  // If /proc is not mounted or hides the process, signals still tell whether it exists.
  if (!std::getline(file, line)) return {.exists = pid > 0 && (kill(pid, 0) == 0 || errno == EPERM)};
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string field;
  ProcessState state{.exists = true};
  for (int i = 3; i <= 52 && fields >> field; ++i) {
    if (i == 3) state.state = field[0];
    if (i == 4) state.parent = std::stoi(field);
    if (i == 14 || i == 15) state.cpu_ticks += std::stoull(field);
    if (i == 22) state.started_at = field;
    if (i == 52 && state.gone()) state.wait_status = std::stoi(field);
  }
  return state;
}

ProcessActivity read_process_activity(int pid) {
  const auto before = read_process_state(pid);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto now = read_process_state(pid);
  if (now.gone()) return ProcessActivity::kGone;
  if (now.state == 'T' || now.state == 't') return ProcessActivity::kStopped;
  if (now.state == 'D') return ProcessActivity::kBlocked;
  if (now.state == 'R' || now.cpu_ticks > before.cpu_ticks) return ProcessActivity::kComputing;
  return ProcessActivity::kAsleep;
}

const char* in_words(ProcessActivity activity) {
  switch (activity) {
    case ProcessActivity::kGone:
      return "is gone";
    case ProcessActivity::kStopped:
      return "is stopped (SIGSTOP or a debugger)";
    case ProcessActivity::kBlocked:
      return "is in uninterruptible sleep (waiting for a disk or a driver)";
    case ProcessActivity::kComputing:
      return "is computing";
    case ProcessActivity::kAsleep:
      return "is asleep";
  }
  return "";
}

}  // namespace cohort::base
