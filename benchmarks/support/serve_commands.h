/// The rank's side of a Team: commands come through a named pipe, one per line, and answers are sent back.
#pragma once

#include <functional>
#include <string>

namespace cohort::bench {

void send_to_standard_output(const std::string& line);

/// Reads commands, one per line, from `path` until "quit", and passes each answer to `send`.
void serve_commands(const std::string& path, const std::function<std::string(const std::string&)>& answer,
                    const std::function<void(const std::string&)>& send = send_to_standard_output);

}  // namespace cohort::bench
