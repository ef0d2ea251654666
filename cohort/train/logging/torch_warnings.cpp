#include "cohort/train/logging/torch_warnings.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <typeinfo>

#include "cohort/base/log/log.h"
#include "cohort/base/log/terminal.h"

namespace cohort::train::detail {
namespace {

class MessageOfWarning final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { base::log_warning("LibTorch: " + warning.msg()); }
};

// Leaked, as a warning may come while a thread ends.
c10::WarningHandler* message_of_warning() {
  static auto* const handler = new MessageOfWarning;
  return handler;
}

// One per thread, as LibTorch has a handler per thread.
struct HandlerOfThread {
  int num_wanted = 0;
  c10::WarningHandler* before = nullptr;  // if null, the thread's handler stays
};
thread_local HandlerOfThread of_thread;

}  // namespace

TorchWarnings::TorchWarnings() {
  if (of_thread.num_wanted++ > 0) return;
  c10::WarningHandler* const present = c10::WarningUtils::get_warning_handler();
  const auto& handler = *present;
  if (typeid(handler) != typeid(c10::WarningHandler) || !base::is_clever_terminal(STDERR_FILENO)) return;
  of_thread.before = present;
  c10::WarningUtils::set_warning_handler(message_of_warning());
}

TorchWarnings::~TorchWarnings() {
  if (--of_thread.num_wanted > 0 || !of_thread.before) return;
  c10::WarningUtils::set_warning_handler(of_thread.before);
  of_thread.before = nullptr;
}

}  // namespace cohort::train::detail
