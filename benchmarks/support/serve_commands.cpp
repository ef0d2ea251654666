#include "benchmarks/support/serve_commands.h"

#include <fstream>
#include <iostream>

namespace cohort::bench {

void send_to_standard_output(const std::string& line) { std::cout << line << std::flush; }

void serve_commands(const std::string& path, const std::function<std::string(const std::string&)>& answer,
                    const std::function<void(const std::string&)>& send) {
  std::ifstream commands(path);
  for (std::string line; std::getline(commands, line) && line != "quit";) send("= " + answer(line) + "\n");
}

}  // namespace cohort::bench
