#include "cohort/base/log/terminal.h"

#include <unistd.h>

#include "cohort/base/file/file.h"
#include "cohort/base/system/env.h"

namespace cohort::base {

bool is_term_clever() { return get_env("TERM").value_or("dumb") != "dumb"; }

bool is_clever_terminal(int fd) { return ::isatty(fd) == 1 && is_term_clever(); }

std::string fresh_line(int fd) { return is_clever_terminal(fd) ? std::string(kEraseLine) : std::string(); }

void write_message(std::string_view lines) {
  (void)write_all(STDERR_FILENO, fresh_line(STDERR_FILENO) + std::string(lines));
}

}  // namespace cohort::base
