/// The rank's side of a Team: commands come through a named pipe, a line each, and answers go back.
#pragma once

#include <functional>
#include <string>

namespace cohort::bench {

void send_to_standard_output(const std::string& line);

/// Reads commands, a line each, from `path` until "quit", and hands each answer to `send`.
void serve_commands(const std::string& path, const std::function<std::string(const std::string&)>& answer,
                    const std::function<void(const std::string&)>& send = send_to_standard_output);

}  // namespace cohort::bench
