// all_to_all, barriers.
#include <ATen/ATen.h>

#include <numeric>

#include "tests/conformance/suite.h"

namespace cohort::test {
namespace {

using Tensors = std::vector<at::Tensor>;
using Counts = std::vector<int64_t>;

// How much rank `from` sends to rank `to`.
using Amount = std::function<int64_t(int from, int to)>;

// Some pairs exchange nothing; one rank may send nothing at all.
int64_t uneven(int64_t count, int from, int to) { return (from + 2 * to) % 3 * count; }

at::Tensor joined(at::ScalarType dtype, const Tensors& list) {
  const auto length = std::accumulate(list.begin(), list.end(), int64_t{0},
                                      [](int64_t sum, const auto& tensor) { return sum + tensor.numel(); });
  auto whole = at::empty({length}, dtype);
  int64_t begin = 0;
  for (const auto& part : list) {
    whole.narrow(0, begin, part.numel()).copy_(part);
    begin += part.numel();
  }
  return whole;
}

// What this rank sends (to_others) or receives.
Tensors parts(const Suite& suite, const Axes& axes, const Amount& amount, bool to_others) {
  Tensors list;
  for (int other = 0; other < suite.size; ++other) {
    const int from = to_others ? suite.rank : other;
    const int to = to_others ? other : suite.rank;
    list.push_back(values(axes.dtype, amount(from, to), from, to));
  }
  return list;
}

void all_to_all_case(Suite& suite, const Axes& axes, const Amount& amount) {
  const auto sent = parts(suite, axes, amount, true);
  const auto expected = parts(suite, axes, amount, false);
  Tensors inputs;
  std::vector<Placed> placed;
  Tensors outputs;
  for (int r = 0; r < suite.size; ++r) {
    inputs.push_back(place(sent[r], axes.layout).tensor);
    placed.push_back(place_output(axes.dtype, expected[r].numel(), axes.layout));
    outputs.push_back(placed.back().tensor);
  }
  c10d::AllToAllOptions options;
  options.asyncOp = axes.waiting != Waiting::kWait;
  suite.finish(suite.backend.alltoall(outputs, inputs, options), axes.waiting);
  for (int r = 0; r < suite.size; ++r) expect_placed(placed[r], expected[r], "output " + std::to_string(r));
}

// As rows of `width` elements; splits are empty when `equal`.
void all_to_all_single_case(Suite& suite, const Axes& axes, const Amount& amount, int64_t width, bool equal) {
  const auto as_elements = [&](int from, int to) { return width * amount(from, to); };
  const auto sent = joined(axes.dtype, parts(suite, axes, as_elements, true));
  const auto expected = joined(axes.dtype, parts(suite, axes, as_elements, false));
  // One dimension is laid out as asked for, two dimensions contiguous.
  auto input = place(sent, width == 1 ? axes.layout : Layout::kContiguous);
  auto output = place_output(axes.dtype, expected.numel(), width == 1 ? axes.layout : Layout::kContiguous);
  if (width > 1) {
    input.tensor = input.tensor.view({sent.numel() / width, width});
    output.tensor = output.tensor.view({expected.numel() / width, width});
  }
  Counts input_splits;
  Counts output_splits;
  for (int r = 0; r < suite.size && !equal; ++r) {
    input_splits.push_back(amount(suite.rank, r));
    output_splits.push_back(amount(r, suite.rank));
  }
  c10d::AllToAllOptions options;
  options.asyncOp = axes.waiting != Waiting::kWait;
  suite.finish(suite.backend.alltoall_base(output.tensor, input.tensor, output_splits, input_splits, options),
               axes.waiting);
  expect_placed(output, expected, "output");
}

void run_all_to_all(Suite& suite, const Axes& axes) {
  const Amount same = [&](int, int) { return axes.count; };
  const Amount different = [&](int from, int to) { return uneven(axes.count, from, to); };
  suite.run_case("all_to_all", axes, "even", [&] { all_to_all_case(suite, axes, same); });
  suite.run_case("all_to_all", axes, "uneven", [&] { all_to_all_case(suite, axes, different); });
  // Splits count rows, so that a tensor of another shape than one row after the other does not fit.
  if (axes.layout == Layout::kTransposed) return;
  suite.run_case("all_to_all_single", axes, "even", [&] { all_to_all_single_case(suite, axes, same, 1, true); });
  suite.run_case("all_to_all_single", axes, "even rows", [&] { all_to_all_single_case(suite, axes, same, 3, true); });
  suite.run_case("all_to_all_single", axes, "uneven",
                 [&] { all_to_all_single_case(suite, axes, different, 1, false); });
  suite.run_case("all_to_all_single", axes, "uneven rows",
                 [&] { all_to_all_single_case(suite, axes, different, 3, false); });
}

// Counts arrivals in the store: nobody may be through the barrier before everybody has come.
void barrier_case(Suite& suite, const std::string& key, const std::function<void()>& pass) {
  suite.options.store->add(key, 1);
  pass();
  const auto arrived = suite.options.store->add(key, 0);
  TORCH_CHECK(arrived == suite.size, "left the barrier when ", arrived, " of ", suite.size, " ranks had come");
}

}  // namespace

void run_exchanging_cases(Suite& suite) {
  suite.for_each_axes([&](const Axes& axes) { run_all_to_all(suite, axes); });
  suite.for_each_large([&](const Axes& axes) {
    const Amount different = [&](int from, int to) { return uneven(axes.count / suite.size, from, to); };
    suite.run_case("all_to_all", axes, "uneven", [&] { all_to_all_case(suite, axes, different); });
    suite.run_case("all_to_all_single", axes, "uneven rows",
                   [&] { all_to_all_single_case(suite, axes, different, 3, false); });
  });
  for (int i = 0; i < 3; ++i) {
    const Axes axes{at::kFloat, i, Layout::kContiguous, suite.next_waiting()};
    suite.run_case("barrier", axes, "", [&] {
      barrier_case(suite, "barrier" + std::to_string(i), [&] {
        c10d::BarrierOptions options;
        options.asyncOp = axes.waiting != Waiting::kWait;
        suite.finish(suite.backend.barrier(options), axes.waiting);
      });
    });
    suite.run_case("monitored_barrier", axes, "", [&] {
      barrier_case(suite, "monitored" + std::to_string(i), [&] {
        c10d::BarrierOptions options;
        options.timeout = std::chrono::seconds(100);
        suite.backend.monitoredBarrier(options, /*waitAllRanks=*/i % 2 == 1);
      });
    });
  }
}

}  // namespace cohort::test
