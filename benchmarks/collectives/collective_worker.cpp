#include "benchmarks/collectives/collective_worker.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <stdexcept>

#include "benchmarks/collectives/collective_pattern.h"
#include "cohort/base/machine/cpu.h"

namespace cohort::bench {
namespace {

constexpr size_t kPage = 4096;

size_t whole_pages(size_t num_bytes) { return (num_bytes + kPage - 1) / kPage * kPage; }

// Returns nanoseconds; a double holds months of them exactly.
double now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

CollectiveCase without_memory(CollectiveCase what) {
  what.memory = Memory::kPrivate;
  return what;
}

}  // namespace

std::string CollectiveWorker::answer(const std::string& command) {
  try {
    return answer_or_throw(command);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return "error: " + text.substr(0, text.find('\n'));
  }
}

std::string CollectiveWorker::answer_or_throw(const std::string& command) {
  std::istringstream words(command);
  std::string verb, name, case_text;
  words >> verb >> name >> case_text;
  if (verb == "describe") return engine(name).describe();
  const auto what = parse_case(case_text);
  if (!what) throw std::runtime_error("not a case: \"" + case_text + "\"");
  if (verb == "verify") return verify(name, *what);
  int num_warm = 0, num_calls = 1;
  words >> num_warm >> num_calls;
  return run(name, *what, num_warm, num_calls);
}

Engine& CollectiveWorker::engine(const std::string& name) {
  const auto found = options_.engines.find(name);
  if (found == options_.engines.end()) throw std::runtime_error("there is no engine \"" + name + "\"");
  return *found->second;
}

// Arenas serve all cases and only grow, so that pages are touched only once. Every rank grows its own at the same command.
std::byte* CollectiveWorker::arena(Memory memory, bool is_output, size_t num_bytes) {
  Arena& place = arenas_[{memory, is_output}];
  if (place.num_bytes < num_bytes) {
    calls_.clear();
    place = {};
    place = {options_.allocate(memory, num_bytes), num_bytes};
    std::memset(place.memory.get(), 0, num_bytes);
  }
  return place.memory.get();
}

std::vector<Buffers> CollectiveWorker::make_buffers(const CollectiveCase& what) {
  const auto plan = plan_buffers(what, default_fresh_bytes());
  const size_t input_stride = whole_pages(plan.input_bytes);
  const size_t output_stride = whole_pages(plan.output_bytes);
  std::byte* inputs = arena(what.memory, false, std::max(kPage, plan.num_buffers * input_stride));
  std::byte* outputs = plan.output_bytes > 0 ? arena(what.memory, true, plan.num_buffers * output_stride) : inputs;
  std::vector<Buffers> buffers;
  for (size_t i = 0; i < plan.num_buffers; ++i) {
    std::byte* input = inputs + i * input_stride;
    buffers.push_back({input, plan.output_bytes > 0 ? outputs + i * output_stride : input});
  }
  return buffers;
}

std::vector<Call>& CollectiveWorker::calls(const std::string& name, const CollectiveCase& what) {
  if (without_memory(what) != last_) calls_.clear();
  last_ = without_memory(what);
  const std::string key = name + " " + name_of(what.memory);
  if (const auto found = calls_.find(key); found != calls_.end()) return found->second;
  Engine& caller = engine(name);
  const auto buffers = make_buffers(what);
  std::vector<Call> prepared;
  for (const Buffers& each : buffers) prepared.push_back(caller.prepare(what, each));
  // If tensors are shared, a rank also touches the pages of others, which the system maps one by one.
  if (what.memory != Memory::kPrivate) {
    for (const Call& call : prepared) call();
  }
  return calls_[key] = std::move(prepared);
}

std::string CollectiveWorker::verify(const std::string& name, const CollectiveCase& what) {
  const Call& call = calls(name, what).front();
  const auto plan = plan_buffers(what, 0);
  const Buffers buffers = make_buffers(what).front();
  if (plan.output_bytes > 0) std::memset(buffers.output, 0x7f, plan.output_bytes);
  fill_input(what, options_.rank, buffers.input);
  // With shared memory other ranks write here: not before this rank's values are in place, and not after it has checked them.
  options_.barrier();
  call();
  const std::string difference = find_difference(what, options_.rank, buffers.output);
  options_.barrier();
  // Sums of zeros stay zeros, however often they are repeated.
  std::memset(buffers.input, 0, plan.input_bytes);
  std::memset(buffers.output, 0, plan.output_bytes);
  options_.barrier();
  return difference.empty() ? "ok" : "error: " + difference;
}

std::string CollectiveWorker::run(const std::string& name, const CollectiveCase& what, int num_warm, int num_calls) {
  const auto& calls_of_case = calls(name, what);
  const double ranks_per_core = static_cast<double>(what.num_ranks) / base::available_cores();
  const bool is_timed_alone = ranks_per_core > 1 && !engine(name).meets();
  const size_t count = calls_of_case.size();
  const auto call_next = [&] {
    if (++next_buffer_ >= count) next_buffer_ = 0;
    calls_of_case[next_buffer_]();
  };
  std::vector<double> marks(static_cast<size_t>(num_calls) + 1);
  options_.barrier();
  for (int i = 0; i < num_warm; ++i) call_next();
  const clockid_t clock = is_timed_alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  marks[0] = now(clock);
  for (int i = 1; i <= num_calls; ++i) {
    call_next();
    marks[static_cast<size_t>(i)] = now(clock);
  }
  const double scale = (is_timed_alone ? ranks_per_core : 1) / (what.op == Op::kSendRecv ? 2 : 1);
  std::ostringstream times;
  for (size_t i = 1; i < marks.size(); ++i) times << std::llround((marks[i] - marks[i - 1]) * scale) << " ";
  return times.str();
}

std::shared_ptr<std::byte> allocate_private(size_t num_bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPage, whole_pages(num_bytes)));
  if (!memory) throw std::bad_alloc();
  return {memory, [](std::byte* pointer) { std::free(pointer); }};
}

}  // namespace cohort::bench
