#include "tests/conformance/suite.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <thread>

#include "cohort/comm/tensors/operation_text.h"

namespace cohort::test {
namespace {

constexpr size_t kShownProblems = 10;
// A backend that fails this often only costs time, most of it in timeouts.
constexpr int kTolerableProblems = 200;
constexpr auto kPatience = std::chrono::seconds(100);

constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kStrided, Layout::kTransposed};

std::vector<int64_t> small_counts(int world_size) {
  const std::set<int64_t> counts{0, 1, world_size - 1, world_size, world_size + 1, 13};
  return {counts.begin(), counts.end()};
}

bool means_unsupported(const std::string& text) {
  return text.rfind("Backend ", 0) == 0 && text.find(" does not support ") != std::string::npos;
}

void poll(c10d::Work& work) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!work.isCompleted()) {
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("isCompleted() never became true");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

Suite::Suite(c10d::Backend& engine, const SuiteOptions& suite_options)
    : backend(engine),
      options(suite_options),
      rank(engine.getRank()),
      size(engine.getSize()),
      counts_(small_counts(size)) {}

void Suite::add_problem(const std::string& text) {
  ++report.num_problems;
  if (report.problems.size() < kShownProblems) report.problems.push_back(text);
  if (report.num_problems >= kTolerableProblems) throw std::runtime_error("too many problems");
}

bool Suite::wants(const std::string& operation) const {
  const auto& only = options.only;
  return only.empty() || std::find(only.begin(), only.end(), operation) != only.end();
}

void Suite::run_case(const std::string& operation, const Axes& axes, const std::string& detail,
                     const std::function<void()>& body) {
  if (!wants(operation)) return;
  const auto dtype = comm::dtype_name(axes.dtype);
  for (const auto& excuse : options.excused) {
    if (excuse.feature != operation && excuse.feature != "dtype " + dtype) continue;
    ++report.num_skipped;
    return;
  }
  const auto name = operation + (detail.empty() ? "" : " " + detail) + ", " + dtype + "[" + std::to_string(axes.count) +
                    "] " + name_of(axes.layout) + ", rank " + std::to_string(rank) + " of " + std::to_string(size);
  try {
    body();
    ++report.num_run;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    const bool skipped = means_unsupported(text);
    report.num_skipped += skipped;
    add_problem(name + (skipped ? ": skipped without an excuse: " : ": ") + text);
  } catch (const std::exception& error) {
    add_problem(name + ": " + error.what());
  }
}

Axes Suite::next_axes(at::ScalarType dtype) {
  const auto turn = num_turns_++;
  const auto round = turn / static_cast<int>(counts_.size());
  return {dtype, counts_[turn % counts_.size()], kLayouts[(turn + round) % 3], next_waiting()};
}

void Suite::for_each_axes(at::ScalarType dtype, Extent extent, const std::function<void(const Axes&)>& body) {
  const bool is_example = dtype == at::kFloat || dtype == at::kShort || dtype == at::kComplexFloat;
  if (extent == Extent::kShort || options.extent == Extent::kShort || !is_example) {
    body(next_axes(dtype));
    return;
  }
  for (const auto count : counts_) {
    for (const auto layout : kLayouts) body({dtype, count, layout, next_waiting()});
  }
}

void Suite::for_each_axes(const std::function<void(const Axes&)>& body) {
  for (const auto dtype : all_dtypes()) {
    for_each_axes(dtype, Extent::kFull, body);
    body(next_axes(dtype));
  }
}

void Suite::for_each_large(const std::function<void(const Axes&)>& body) {
  constexpr int64_t kCount = (1 << 19) + 3;  // shm's slots have 512 KiB
  body({at::kFloat, kCount, Layout::kContiguous, next_waiting()});
  body({at::kBFloat16, kCount, Layout::kContiguous, next_waiting()});
  body({at::kShort, kCount / 2, Layout::kStrided, next_waiting()});
  body({at::kLong, 5003, Layout::kTransposed, next_waiting()});
}

void Suite::finish(const c10::intrusive_ptr<c10d::Work>& work, Waiting waiting) const {
  if (!work) throw std::runtime_error("the backend returned no Work");
  if (waiting == Waiting::kPoll) {
    poll(*work);
    if (const auto failure = work->exception()) std::rethrow_exception(failure);
  } else if (waiting == Waiting::kFuture) {
    const auto future = work->getFuture();
    future->wait();
    if (future->hasError()) std::rethrow_exception(future->exception_ptr());
    return;
  }
  if (!work->wait()) throw std::runtime_error("wait() returned false");
  if (!work->isCompleted()) throw std::runtime_error("isCompleted() is false after wait()");
  if (!work->isSuccess()) throw std::runtime_error("isSuccess() is false after wait()");
}

Report run_conformance(c10d::Backend& backend, const SuiteOptions& options) {
  Suite suite(backend, options);
  try {
    run_reducing_cases(suite);
    run_moving_cases(suite);
    run_exchanging_cases(suite);
    run_point_to_point_cases(suite);
  } catch (const std::exception& error) {
    ++suite.report.num_problems;
    suite.report.problems.push_back(std::string("given up: ") + error.what());
  }
  return suite.report;
}

}  // namespace cohort::test
