// broadcast, all_gather, gather, scatter.
#include <ATen/ATen.h>

#include "tests/conformance/suite.h"

namespace cohort::test {
namespace {

using Tensors = std::vector<at::Tensor>;

int root_of(const Suite& suite, const Axes& axes) { return static_cast<int>((axes.count + 1) % suite.size); }

template <class EngineOptions>
EngineOptions options_for(const Axes& axes) {
  EngineOptions options;
  options.asyncOp = axes.waiting != Waiting::kWait;
  return options;
}

struct Outputs {
  std::vector<Placed> placed;
  Tensors tensors;
};

Outputs outputs_for(at::ScalarType dtype, const std::vector<int64_t>& counts, Layout layout) {
  Outputs outputs;
  for (const auto count : counts) {
    outputs.placed.push_back(place_output(dtype, count, layout));
    outputs.tensors.push_back(outputs.placed.back().tensor);
  }
  return outputs;
}

Outputs one_for_each_rank(const Suite& suite, const Axes& axes) {
  return outputs_for(axes.dtype, std::vector<int64_t>(suite.size, axes.count), axes.layout);
}

void expect_all(const Outputs& outputs, const std::function<at::Tensor(int)>& expected) {
  for (size_t i = 0; i < outputs.placed.size(); ++i) {
    expect_placed(outputs.placed[i], expected(static_cast<int>(i)), "output " + std::to_string(i));
  }
}

void broadcast_case(Suite& suite, const Axes& axes) {
  const int root = root_of(suite, axes);
  const auto placed = place(values(axes.dtype, axes.count, suite.rank), axes.layout);
  Tensors tensors{placed.tensor};
  auto options = options_for<c10d::BroadcastOptions>(axes);
  options.rootRank = root;
  suite.finish(suite.backend.broadcast(tensors, options), axes.waiting);
  expect_placed(placed, values(axes.dtype, axes.count, root), "result");
}

void all_gather_case(Suite& suite, const Axes& axes) {
  const auto input = place(values(axes.dtype, axes.count, suite.rank), axes.layout);
  const auto outputs = one_for_each_rank(suite, axes);
  std::vector<Tensors> lists{outputs.tensors};
  Tensors inputs{input.tensor};
  suite.finish(suite.backend.allgather(lists, inputs, options_for<c10d::AllgatherOptions>(axes)), axes.waiting);
  expect_all(outputs, [&](int r) { return values(axes.dtype, axes.count, r); });
  expect_placed(input, values(axes.dtype, axes.count, suite.rank), "input");
}

// Every rank's values, one after the other.
at::Tensor values_of_all(const Suite& suite, at::ScalarType dtype, int64_t count, int salt) {
  auto whole = at::empty({suite.size * count}, dtype);
  for (int r = 0; r < suite.size; ++r) whole.narrow(0, r * count, count).copy_(values(dtype, count, r, salt));
  return whole;
}

void all_gather_single_case(Suite& suite, const Axes& axes) {
  auto input = place(values(axes.dtype, axes.count, suite.rank), axes.layout);
  auto output = place_output(axes.dtype, axes.count * suite.size, axes.layout);
  suite.finish(suite.backend._allgather_base(output.tensor, input.tensor, options_for<c10d::AllgatherOptions>(axes)),
               axes.waiting);
  expect_placed(output, values_of_all(suite, axes.dtype, axes.count, 0), "output");
}

void all_gather_coalesced_case(Suite& suite, const Axes& axes) {
  const std::vector<int64_t> counts{axes.count, 3};
  Tensors inputs;
  for (int i = 0; i < 2; ++i) {
    inputs.push_back(place(values(axes.dtype, counts[i], suite.rank, i), axes.layout).tensor);
  }
  std::vector<Outputs> outputs;
  std::vector<Tensors> lists;
  for (int r = 0; r < suite.size; ++r) {
    outputs.push_back(outputs_for(axes.dtype, counts, axes.layout));
    lists.push_back(outputs.back().tensors);
  }
  suite.finish(suite.backend.allgather_coalesced(lists, inputs, options_for<c10d::AllgatherOptions>(axes)),
               axes.waiting);
  for (int r = 0; r < suite.size; ++r) {
    expect_all(outputs[r], [&](int i) { return values(axes.dtype, counts[i], r, i); });
  }
}

void all_gather_into_tensor_coalesced_case(Suite& suite, const Axes& axes) {
  const std::vector<int64_t> counts{axes.count, 3};
  Tensors inputs;
  for (int i = 0; i < 2; ++i) {
    inputs.push_back(place(values(axes.dtype, counts[i], suite.rank, i), axes.layout).tensor);
  }
  auto outputs = outputs_for(axes.dtype, {counts[0] * suite.size, counts[1] * suite.size}, axes.layout);
  suite.finish(
      suite.backend.allgather_into_tensor_coalesced(outputs.tensors, inputs, options_for<c10d::AllgatherOptions>(axes)),
      axes.waiting);
  expect_all(outputs, [&](int i) { return values_of_all(suite, axes.dtype, counts[i], i); });
}

void gather_case(Suite& suite, const Axes& axes) {
  const int root = root_of(suite, axes);
  const auto input = place(values(axes.dtype, axes.count, suite.rank), axes.layout);
  Outputs outputs;
  std::vector<Tensors> lists;
  if (suite.rank == root) {
    outputs = one_for_each_rank(suite, axes);
    lists.push_back(outputs.tensors);
  }
  Tensors inputs{input.tensor};
  auto options = options_for<c10d::GatherOptions>(axes);
  options.rootRank = root;
  suite.finish(suite.backend.gather(lists, inputs, options), axes.waiting);
  expect_all(outputs, [&](int r) { return values(axes.dtype, axes.count, r); });
}

void scatter_case(Suite& suite, const Axes& axes) {
  const int root = root_of(suite, axes);
  std::vector<Tensors> lists;
  if (suite.rank == root) {
    lists.emplace_back();
    for (int r = 0; r < suite.size; ++r) {
      lists[0].push_back(place(values(axes.dtype, axes.count, root, r), axes.layout).tensor);
    }
  }
  auto outputs = outputs_for(axes.dtype, {axes.count}, axes.layout);
  auto options = options_for<c10d::ScatterOptions>(axes);
  options.rootRank = root;
  suite.finish(suite.backend.scatter(outputs.tensors, lists, options), axes.waiting);
  expect_all(outputs, [&](int) { return values(axes.dtype, axes.count, root, suite.rank); });
}

}  // namespace

void run_moving_cases(Suite& suite) {
  const std::vector<std::pair<std::string, void (*)(Suite&, const Axes&)>> operations{
      {"broadcast", broadcast_case},
      {"all_gather", all_gather_case},
      {"all_gather_single", all_gather_single_case},
      {"all_gather_coalesced", all_gather_coalesced_case},
      {"all_gather_into_tensor_coalesced", all_gather_into_tensor_coalesced_case},
      {"gather", gather_case},
      {"scatter", scatter_case},
  };
  for (const auto& [name, body] : operations) {
    const auto run = [&, &name = name, &body = body](const Axes& axes) {
      suite.run_case(name, axes, "", [&] { body(suite, axes); });
    };
    suite.for_each_axes(run);
    suite.for_each_large(run);
  }
}

}  // namespace cohort::test
