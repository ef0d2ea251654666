/// Records the names of the operators that run in this thread, for messages.
#pragma once

#include <ATen/record_function.h>

#include <memory>
#include <string>
#include <vector>

namespace cohort::activation {

class OperatorLog {
 public:
  /// Records nothing unless `is_enabled`. Logs must end in reverse order.
  explicit OperatorLog(bool is_enabled);
  OperatorLog(const OperatorLog&) = delete;
  OperatorLog& operator=(const OperatorLog&) = delete;
  ~OperatorLog();

  const std::vector<std::string>& operators() const { return operators_; }

 private:
  static std::unique_ptr<at::ObserverContext> write_down(const at::RecordFunction& function);

  std::vector<std::string> operators_;
  const bool is_enabled_;
  OperatorLog* outer_ = nullptr;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;  // that of the outermost log
};

}  // namespace cohort::activation
