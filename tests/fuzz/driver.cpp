// main() of a fuzz target where libFuzzer is not: runs the inputs it is given, then as many made from them as time allows.
//
//     TARGET [--seconds=N] [--seed=N] [--dictionary=FILE] [--out=FOLDER] [--max-bytes=N] FILE or FOLDER ...
//
// The inputs run in a child process, which copies each into memory that it shares with its parent before it begins: however the
// child dies, the parent still has the input, writes it to a file and says how to repeat it. One that takes three seconds of
// processor time, or 128 MiB, is a fault, too. Without --seconds only the given inputs run.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sanitizer/common_interface_defs.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <random>
#include <thread>

#include "cohort/base/text/text.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutator.h"

// Of the sanitizer's allocator_interface.h, which GCC does not install.
extern "C" size_t __sanitizer_get_current_allocated_bytes();
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*, size_t),
                                                         void (*free_hook)(const volatile void*));

extern "C" __attribute__((weak)) int LLVMFuzzerInitialize(int* argc, char*** argv);

extern "C" const char* __asan_default_options() { return "quarantine_size_mb=64:detect_stack_use_after_return=0"; }
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }

namespace cohort::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostBytes = 4 << 20;
constexpr int64_t kSlowMicroseconds = 3'000'000;
/// For an input that sleeps, where processor time does not tell.
constexpr std::chrono::seconds kHangTime{60};
constexpr size_t kMaxMemory = 128 << 20;
constexpr size_t kMemoryStep = 8 << 20;

enum class Fault : int { kNone, kSlow, kMemory };

/// What the parent knows of the child.
struct Shared {
  std::atomic<uint64_t> num_runs;  ///< begun
  std::atomic<int64_t> begin;      ///< of the input under way, in the child's processor time
  std::atomic<Fault> fault;
  std::atomic<int64_t> longest;
  std::atomic<bool> is_done;  ///< with all inputs; what is left is the look for leaks
  size_t size;
  char bytes[kMostBytes];
};
Shared* shared = nullptr;

struct Options {
  std::string program;
  double seconds = 0;
  uint64_t seed = std::random_device{}();
  size_t max_bytes = 64 * 1024;
  std::string out = ".";
  std::vector<std::string> tokens;
  std::vector<std::string> paths;

  std::string target() const { return fs::path(program).filename().string().substr(std::strlen("cohort_fuzz_")); }
};

std::string read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

Options parse_options(int argc, char** argv) {
  Options options{.program = argv[0]};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = word.substr(std::min(word.find('=') + 1, word.size()));
    if (word.starts_with("--seconds=")) {
      options.seconds = std::stod(value);
    } else if (word.starts_with("--seed=")) {
      options.seed = std::stoull(value);
    } else if (word.starts_with("--max-bytes=")) {
      options.max_bytes = std::min<size_t>(std::stoull(value), kMostBytes);
    } else if (word.starts_with("--out=")) {
      options.out = value;
    } else if (word.starts_with("--dictionary=")) {
      options.tokens = parse_dictionary(read_whole(value));
    } else if (word.starts_with("--")) {
      throw std::runtime_error("unknown flag " + word);
    } else {
      options.paths.push_back(word);
    }
  }
  return options;
}

std::vector<std::string> read_inputs(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const auto& path : paths) {
    if (!fs::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs;
  for (const auto& file : files) inputs.push_back(read_whole(file).substr(0, kMostBytes));
  return inputs;
}

int64_t processor_time(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000 + time.tv_nsec / 1000;
}

// ---- in the child

std::atomic<size_t> num_taken = 0;
std::atomic<size_t> next_look = kMemoryStep;
size_t num_held_before = 0;

// Called for every allocation; looks at what is held only after so many bytes more.
void count_memory(const volatile void*, size_t size) {
  const auto taken = num_taken.fetch_add(size) + size;
  if (taken < next_look.load()) return;
  next_look = taken + kMemoryStep;
  const auto held = __sanitizer_get_current_allocated_bytes();
  if (held < num_held_before + kMaxMemory) return;
  shared->fault = Fault::kMemory;
  __sanitizer_print_stack_trace();
  _exit(1);
}

// An exception that escapes from the target ends the child here.
void run(const std::string& input) noexcept {
  shared->size = input.size();
  std::memcpy(shared->bytes, input.data(), input.size());
  num_held_before = __sanitizer_get_current_allocated_bytes();
  const auto begin = processor_time(CLOCK_PROCESS_CPUTIME_ID);
  shared->begin = begin;
  shared->num_runs.fetch_add(1);
  // In memory of its own, so that a read behind its end is seen.
  std::vector<uint8_t> bytes(input.begin(), input.end());
  bytes.shrink_to_fit();
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  const auto time = processor_time(CLOCK_PROCESS_CPUTIME_ID) - begin;
  shared->longest = std::max(shared->longest.load(), time);
  if (time < kSlowMicroseconds) return;
  shared->fault = Fault::kSlow;
  _exit(1);
}

void run_all(const Options& options, const std::vector<std::string>& given) {
  // What is made once, at first use, is not the first input's fault.
  const uint8_t nothing = 0;
  LLVMFuzzerTestOneInput(&nothing, 0);
  __sanitizer_install_malloc_and_free_hooks(count_memory, [](const volatile void*) {});
  for (const auto& input : given) run(input);
  if (options.seconds <= 0) return;
  const Mutator mutator(given, options.tokens, options.max_bytes);
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  for (uint64_t number = 0; Clock::now() < end; ++number) run(mutator.make(options.seed, number));
}

// ---- in the parent

// Waits for the child and ends it where one input takes too long. Returns what waitpid() says.
int watch(pid_t child) {
  clockid_t clock{};
  clock_getcpuclockid(child, &clock);
  uint64_t run_seen = 0;
  auto since = Clock::now();
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto run = shared->num_runs.load();
    if (run != run_seen) since = Clock::now();
    run_seen = run;
    // Twice the limit: the child itself judges what ends.
    const bool is_slow = run > 0 && processor_time(clock) - shared->begin.load() > 2 * kSlowMicroseconds;
    if (run != shared->num_runs.load() || (!is_slow && Clock::now() < since + kHangTime)) continue;
    shared->fault = Fault::kSlow;
    kill(child, SIGKILL);
  }
  return status;
}

std::string reason_of(int status) {
  if (shared->fault == Fault::kSlow) return "it takes more than three seconds of processor time, or does not end";
  if (shared->fault == Fault::kMemory) return "it takes more than " + base::format_bytes(kMaxMemory);
  if (WIFSIGNALED(status)) return "it dies of " + base::signal_name(WTERMSIG(status));
  return fmt::format("it ends with exit code {}", WEXITSTATUS(status));
}

void report(const Options& options, int status) {
  if (shared->is_done) {
    fmt::print(stderr, "fuzz: {}: FAULT after {} runs of seed {}: the look for leaks, above, ends with exit code {}\n",
               options.target(), shared->num_runs.load(), options.seed, WEXITSTATUS(status));
    return;
  }
  const std::string input(shared->bytes, shared->size);
  fs::create_directories(options.out);
  const auto path =
      fs::path(options.out) / fmt::format("crash-{}-{:016x}", options.target(), std::hash<std::string>{}(input));
  std::ofstream(path, std::ios::binary) << input;
  fmt::print(stderr, "fuzz: {}: FAULT in run {} of seed {}: {}\n", options.target(), shared->num_runs.load(),
             options.seed, reason_of(status));
  fmt::print(stderr, "fuzz: its input has {} bytes; again: {} {}\n", input.size(), options.program, path.string());
}

int main_of(int argc, char** argv) {
  const auto options = parse_options(argc, argv);
  const auto given = read_inputs(options.paths);
  shared = new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared{};
  const auto begin = Clock::now();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    if (LLVMFuzzerInitialize) LLVMFuzzerInitialize(&argc, &argv);
    run_all(options, given);
    shared->is_done = true;
    std::exit(0);
  }
  const int status = watch(child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    report(options, status);
    return 1;
  }
  fmt::print("fuzz: {}: {} given inputs and {} made from seed {} in {}, the longest took {}, ok\n", options.target(),
             given.size(), shared->num_runs.load() - given.size(), options.seed,
             base::format_duration(Clock::now() - begin),
             base::format_duration(std::chrono::microseconds(shared->longest.load())));
  return 0;
}

}  // namespace
}  // namespace cohort::fuzz

int main(int argc, char** argv) {
  try {
    return cohort::fuzz::main_of(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "fuzz: {}\n", error.what());
    return 2;
  }
}
