#include "benchmarks/support/team.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <stdexcept>

#include "benchmarks/support/value_or_throw.h"
#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::bench {
namespace {

constexpr int kSilenceMilliseconds = 5 * 60 * 1000;

// Gives every rank one thread, and every team the loopback device, whatever the host's name resolves to.
std::map<std::string, std::string> rank_environment(const std::map<std::string, std::string>& more) {
  auto variables = base::environment();
  for (const auto& [name, value] : more) variables[name] = value;
  variables["OMP_NUM_THREADS"] = "1";
  variables["MKL_NUM_THREADS"] = "1";
  variables["GLOO_SOCKET_IFNAME"] = "lo";
  return variables;
}

base::Fd make_named_pipe(const std::string& path) {
  if (::mkfifo(path.c_str(), 0600) != 0) {
    throw std::runtime_error(fmt::format("cannot make the pipe \"{}\": {}", path, base::errno_text(errno)));
  }
  // Opened for reading, too, as a writer alone would block here until the rank has opened its end.
  return base::Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

}  // namespace

ScratchFolder::ScratchFolder()
    : path_(value_or_throw(
          base::make_unique_directory((std::filesystem::temp_directory_path() / "cohort-bench-").string()))) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Team::Team(const TeamOptions& options) : name_(options.name) {
  if (options.is_launcher) {
    start_launcher(options);
  } else {
    start_ranks(options);
  }
}

void Team::start_ranks(const TeamOptions& options) {
  const std::string base_path = options.folder + "/" + options.name;
  std::vector<base::ProcessOptions> starts;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const std::string pipe = fmt::format("{}-commands-{}", base_path, rank);
    ranks_.push_back({static_cast<size_t>(rank), make_named_pipe(pipe), {}, {}});
    auto arguments = options.command;
    arguments.insert(arguments.end(), {std::to_string(rank), pipe, "file://" + base_path + "-store"});
    starts.push_back({.arguments = std::move(arguments),
                      .environment = rank_environment(options.environment),
                      .standard_output = base::Stream::pipe(),
                      .standard_error = base::Stream::inherit()});
  }
  // As the launcher does, so that users get the same figures.
  processes_ = value_or_throw(base::Process::start_together(starts));
  for (Rank& rank : ranks_) rank.answers = std::move(processes_[rank.process].standard_output());
}

void Team::start_launcher(const TeamOptions& options) {
  const std::string base_path = options.folder + "/" + options.name;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    auto commands = make_named_pipe(fmt::format("{}-commands-{}", base_path, rank));
    auto answers = make_named_pipe(fmt::format("{}-answers-{}", base_path, rank));
    ranks_.push_back({0, std::move(commands), std::move(answers), {}});
  }
  auto arguments = options.command;
  arguments.push_back(base_path);
  processes_.push_back(value_or_throw(base::Process::start({.arguments = std::move(arguments),
                                                            .environment = rank_environment(options.environment),
                                                            .standard_output = base::Stream::null(),
                                                            .standard_error = base::Stream::inherit()})));
}

Team::~Team() {
  for (auto& rank : ranks_) (void)base::write_all(rank.commands.get(), "quit\n");
  for (auto& process : processes_) (void)process.wait_for(std::chrono::seconds(20));
}

std::vector<std::string> Team::ask(const std::string& command) {
  for (auto& rank : ranks_) {
    value_or_throw(base::write_all(rank.commands.get(), command + "\n"));
  }
  std::vector<std::string> answers;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) answers.push_back(read_answer(rank, command));
  return answers;
}

double Team::ask_number(const std::string& command) {
  double largest = 0;
  for (const std::string& answer : ask(command)) {
    const auto value = base::parse_double(answer);
    if (!value) throw std::runtime_error(fmt::format("{}: \"{}\" answered with \"{}\"", name_, command, answer));
    largest = std::max(largest, *value);
  }
  return largest;
}

std::string Team::read_answer(size_t rank, const std::string& command) {
  auto& [process, commands, answers, unread] = ranks_[rank];
  while (true) {
    for (size_t end = unread.find('\n'); end != std::string::npos; end = unread.find('\n')) {
      const std::string line = unread.substr(0, end);
      unread.erase(0, end + 1);
      if (line.starts_with("= ")) return line.substr(2);
    }
    // A named pipe does not report that its writer has ended; the process does.
    std::array<pollfd, 2> entries{pollfd{.fd = answers.get(), .events = POLLIN, .revents = 0},
                                  pollfd{.fd = processes_[process].pidfd(), .events = POLLIN, .revents = 0}};
    const bool has_news = ::poll(entries.data(), entries.size(), kSilenceMilliseconds) > 0;
    const bool has_data = has_news && (entries[0].revents & POLLIN);
    std::array<char, 4096> buffer{};
    const ssize_t count = has_data ? ::read(answers.get(), buffer.data(), buffer.size()) : 0;
    if (count <= 0) {
      throw std::runtime_error(fmt::format("rank {} of team \"{}\" {} at \"{}\"", rank, name_,
                                           has_news ? "ended" : "was silent for 5 minutes", command));
    }
    unread.append(buffer.data(), static_cast<size_t>(count));
  }
}

double time_program(const std::vector<std::string>& arguments) {
  const ScratchFolder folder;
  const std::string errors = folder.path() + "/stderr";
  const auto begin = std::chrono::steady_clock::now();
  auto process = value_or_throw(base::Process::start({.arguments = arguments,
                                                      .environment = std::nullopt,
                                                      .standard_output = base::Stream::null(),
                                                      .standard_error = base::Stream::file(errors)}));
  const auto status = process.wait();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  if (!status.ok()) {
    const auto text = base::read_file(errors);
    throw std::runtime_error(fmt::format("\"{}\" ended with {}\n{}", base::join(arguments, " "), status.describe(),
                                         text ? *text : std::string()));
  }
  return elapsed.count();
}

}  // namespace cohort::bench
