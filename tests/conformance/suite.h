/// The conformance suite: what every backend must do, written once on c10d::Backend.
///
/// Cases: operation x dtype x size (0, 1, world - 1, world, world + 1, a prime, a few of several segments) x layout x way of
/// waiting. One dtype of each kind (served as it is, widened, viewed as another) gets the whole product of sizes and layouts,
/// the others every operation with sizes and layouts in turn. Every rank runs the same cases in the same order.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <string>
#include <vector>

#include "tests/conformance/backends.h"
#include "tests/conformance/values.h"

namespace cohort::test {

struct Report {
  int num_run = 0;
  int num_skipped = 0;
  int num_problems = 0;
  /// The first of them.
  std::vector<std::string> problems;
};

/// kShort: for ranks that are processes, or many.
enum class Extent { kFull, kShort };

struct SuiteOptions {
  std::vector<Excuse> excused;
  /// For what ranks tell each other beside the backend; of this group alone.
  c10::intrusive_ptr<c10d::Store> store;
  Extent extent = Extent::kFull;
  /// Operations to run; empty: all.
  std::vector<std::string> only;
};

/// Runs the suite on this rank of `backend`'s group. Problems: wrong results, errors, and cases that the backend does not
/// support although no excuse says so.
/// Collective: every rank of the group must call it.
Report run_conformance(c10d::Backend& backend, const SuiteOptions& options);

/// How a case waits: in the call, by asking isCompleted(), by the future.
enum class Waiting { kWait, kPoll, kFuture };

struct Axes {
  at::ScalarType dtype;
  int64_t count;
  Layout layout;
  Waiting waiting;
};

/// What the operations' cases are written with.
class Suite {
 public:
  Suite(c10d::Backend& engine, const SuiteOptions& suite_options);

  c10d::Backend& backend;
  const SuiteOptions& options;
  const int rank;
  const int size;
  Report report;

  /// Runs one case, unless one of `features` is excused; `detail` tells it from the others of its operation.
  void run_case(const std::string& operation, const Axes& axes, const std::string& detail,
                const std::function<void()>& body);
  bool wants(const std::string& operation) const;

  /// Every dtype, with sizes, layouts and ways of waiting as described above.
  void for_each_axes(const std::function<void(const Axes&)>& body);
  /// The same for one dtype. kShort: one size and layout, the next at each call.
  void for_each_axes(at::ScalarType dtype, Extent extent, const std::function<void(const Axes&)>& body);
  /// Sizes of several segments, on a few dtypes; at any extent.
  void for_each_large(const std::function<void(const Axes&)>& body);
  /// Throws what the operation threw; std::runtime_error for a Work that breaks its contract.
  void finish(const c10::intrusive_ptr<c10d::Work>& work, Waiting waiting) const;
  Waiting next_waiting() { return static_cast<Waiting>(num_cases_++ % 3); }

 private:
  void add_problem(const std::string& text);
  Axes next_axes(at::ScalarType dtype);

  const std::vector<int64_t> counts_;
  int num_cases_ = 0;
  int num_turns_ = 0;
};

void run_reducing_cases(Suite& suite);
void run_moving_cases(Suite& suite);
void run_exchanging_cases(Suite& suite);
void run_point_to_point_cases(Suite& suite);

}  // namespace cohort::test
