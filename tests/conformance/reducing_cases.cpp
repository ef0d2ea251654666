// all_reduce, reduce, reduce_scatter.
#include <ATen/ATen.h>

#include "cohort/comm/tensors/operation_text.h"
#include "tests/conformance/suite.h"

namespace cohort::test {
namespace {

using Tensors = std::vector<at::Tensor>;
using OpBody = std::function<void(const Axes&, RedOp)>;

// Every dtype and ReduceOp.
void for_each_reduction(Suite& suite, const std::string& operation, Extent extent, const OpBody& body) {
  for (const auto dtype : all_dtypes()) {
    for (const auto op : operations_on(dtype)) {
      suite.for_each_axes(dtype, extent, [&](const Axes& axes) {
        suite.run_case(operation, axes, comm::reduce_op_name(make_op(op, suite.rank)), [&] { body(axes, op); });
      });
    }
  }
}

void all_reduce_case(Suite& suite, const Axes& axes, RedOp op) {
  const auto placed = place(reducible(axes.dtype, op, axes.count, suite.rank), axes.layout);
  const auto expected = reduced(axes.dtype, op, axes.count, suite.size);
  Tensors tensors{placed.tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = make_op(op, suite.rank);
  options.asyncOp = axes.waiting != Waiting::kWait;
  const auto work = suite.backend.allreduce(tensors, options);
  suite.finish(work, axes.waiting);
  expect_placed(placed, expected, "result");
  if (axes.waiting != Waiting::kFuture) return;
  const auto results = work->getFuture()->value().toTensorVector();
  TORCH_CHECK(results.size() == 1 && results[0].data_ptr() == placed.tensor.data_ptr(),
              "the future's value is not the user's tensor");
}

void all_reduce_coalesced_case(Suite& suite, const Axes& axes, RedOp op) {
  std::vector<Placed> placed;
  Tensors tensors;
  const std::vector<int64_t> counts{axes.count, 1, axes.count + 2};
  for (int i = 0; i < 3; ++i) {
    const auto layout = i == 1 ? Layout::kContiguous : axes.layout;
    placed.push_back(place(reducible(axes.dtype, op, counts[i], suite.rank, i), layout));
    tensors.push_back(placed.back().tensor);
  }
  c10d::AllreduceCoalescedOptions options;
  options.reduceOp = make_op(op, suite.rank);
  options.asyncOp = axes.waiting != Waiting::kWait;
  suite.finish(suite.backend.allreduce_coalesced(tensors, options), axes.waiting);
  for (int i = 0; i < 3; ++i) {
    expect_placed(placed[i], reduced(axes.dtype, op, counts[i], suite.size, i), "tensor " + std::to_string(i));
  }
}

// Each rank has one number of its own and one that the next rank has too; rank 0 has none when `one_is_empty`.
void sparse_case(Suite& suite, const Axes& axes, bool one_is_empty, RedOp op) {
  const auto length = suite.size + 1;
  const auto sparse = [&](int rank) {
    if (one_is_empty && rank == 0) {
      return at::sparse_coo_tensor(at::empty({1, 0}, at::kLong), at::empty({0, 2}, axes.dtype), {length, 2});
    }
    return at::sparse_coo_tensor(at::tensor({rank, rank + 1}, at::kLong).view({1, 2}),
                                 at::full({2, 2}, 2 * suite.size * (rank + 1), axes.dtype), {length, 2});
  };
  auto expected = at::zeros({length, 2}, axes.dtype);
  for (int rank = 0; rank < suite.size; ++rank) expected += sparse(rank).to_dense();
  if (op == RedOp::AVG) expected.copy_(at::div(expected, suite.size, "trunc"));
  Tensors tensors{sparse(suite.rank)};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  options.asyncOp = axes.waiting != Waiting::kWait;
  suite.finish(suite.backend.allreduce_sparse(tensors, options), axes.waiting);
  TORCH_CHECK(at::equal(tensors[0].to_dense(), expected), "expected ", expected, ", got ", tensors[0].to_dense());
}

void reduce_case(Suite& suite, const Axes& axes, RedOp op) {
  const int root = static_cast<int>(axes.count % suite.size);
  const auto placed = place(reducible(axes.dtype, op, axes.count, suite.rank), axes.layout);
  Tensors tensors{placed.tensor};
  c10d::ReduceOptions options;
  options.reduceOp = make_op(op, suite.rank);
  options.rootRank = root;
  options.asyncOp = axes.waiting != Waiting::kWait;
  suite.finish(suite.backend.reduce(tensors, options), axes.waiting);
  if (suite.rank == root) expect_placed(placed, reduced(axes.dtype, op, axes.count, suite.size), "result");
}

c10d::ReduceScatterOptions scatter_options(const Suite& suite, const Axes& axes, RedOp op) {
  c10d::ReduceScatterOptions options;
  options.reduceOp = make_op(op, suite.rank);
  options.asyncOp = axes.waiting != Waiting::kWait;
  return options;
}

void reduce_scatter_case(Suite& suite, const Axes& axes, RedOp op) {
  std::vector<Placed> placed;
  std::vector<Tensors> inputs(1);
  for (int r = 0; r < suite.size; ++r) {
    placed.push_back(place(reducible(axes.dtype, op, axes.count, suite.rank, r), axes.layout));
    inputs[0].push_back(placed.back().tensor);
  }
  const auto output = place_output(axes.dtype, axes.count, axes.layout);
  Tensors outputs{output.tensor};
  suite.finish(suite.backend.reduce_scatter(outputs, inputs, scatter_options(suite, axes, op)), axes.waiting);
  expect_placed(output, reduced(axes.dtype, op, axes.count, suite.size, suite.rank), "output");
  for (int r = 0; r < suite.size; ++r) {
    expect_placed(placed[r], reducible(axes.dtype, op, axes.count, suite.rank, r), "input " + std::to_string(r));
  }
}

at::Tensor parts(Suite& suite, const Axes& axes, RedOp op, int64_t count, int salt) {
  Tensors list;
  for (int r = 0; r < suite.size; ++r) list.push_back(reducible(axes.dtype, op, count, suite.rank, salt + r));
  auto whole = at::empty({count * suite.size}, axes.dtype);
  for (int r = 0; r < suite.size; ++r) whole.narrow(0, r * count, count).copy_(list[r]);
  return whole;
}

void reduce_scatter_base_case(Suite& suite, const Axes& axes, RedOp op) {
  const auto whole = parts(suite, axes, op, axes.count, 0);
  auto input = place(whole, axes.layout);
  auto output = place_output(axes.dtype, axes.count, axes.layout);
  suite.finish(suite.backend._reduce_scatter_base(output.tensor, input.tensor, scatter_options(suite, axes, op)),
               axes.waiting);
  expect_placed(output, reduced(axes.dtype, op, axes.count, suite.size, suite.rank), "output");
  expect_placed(input, whole, "input");
}

void reduce_scatter_coalesced_case(Suite& suite, const Axes& axes, RedOp op) {
  const std::vector<int64_t> counts{axes.count, axes.count + 1};
  std::vector<Placed> placed;
  Tensors inputs;
  Tensors outputs;
  for (int i = 0; i < 2; ++i) {
    inputs.push_back(place(parts(suite, axes, op, counts[i], 10 * i), axes.layout).tensor);
    placed.push_back(place_output(axes.dtype, counts[i], axes.layout));
    outputs.push_back(placed.back().tensor);
  }
  suite.finish(suite.backend.reduce_scatter_tensor_coalesced(outputs, inputs, scatter_options(suite, axes, op)),
               axes.waiting);
  for (int i = 0; i < 2; ++i) {
    expect_placed(placed[i], reduced(axes.dtype, op, counts[i], suite.size, 10 * i + suite.rank),
                  "output " + std::to_string(i));
  }
}

}  // namespace

void run_reducing_cases(Suite& suite) {
  const auto with = [&suite](auto body) {
    return [&suite, body](const Axes& axes, RedOp op) { body(suite, axes, op); };
  };
  for_each_reduction(suite, "all_reduce", Extent::kFull, with(all_reduce_case));
  for_each_reduction(suite, "all_reduce_coalesced", Extent::kShort, with(all_reduce_coalesced_case));
  for_each_reduction(suite, "reduce", Extent::kShort, with(reduce_case));
  for_each_reduction(suite, "reduce_scatter", Extent::kShort, with(reduce_scatter_case));
  for_each_reduction(suite, "reduce_scatter_single", Extent::kShort, with(reduce_scatter_base_case));
  for_each_reduction(suite, "reduce_scatter_tensor_coalesced", Extent::kShort, with(reduce_scatter_coalesced_case));
  suite.for_each_large([&](const Axes& axes) {
    for (const auto op : {RedOp::SUM, RedOp::MAX, RedOp::AVG}) {
      const auto detail = comm::reduce_op_name(op);
      suite.run_case("all_reduce", axes, detail, [&] { all_reduce_case(suite, axes, op); });
      suite.run_case("reduce_scatter_single", axes, detail, [&] { reduce_scatter_base_case(suite, axes, op); });
    }
    suite.run_case("reduce", axes, "SUM", [&] { reduce_case(suite, axes, RedOp::SUM); });
  });
  for (const auto dtype : {at::kFloat, at::kDouble, at::kInt, at::kLong}) {
    for (const bool one_is_empty : {false, true}) {
      for (const auto op : {RedOp::SUM, RedOp::AVG}) {
        const Axes axes{dtype, suite.size + 1, Layout::kContiguous, suite.next_waiting()};
        suite.run_case("all_reduce_sparse", axes, comm::reduce_op_name(op),
                       [&] { sparse_case(suite, axes, one_is_empty, op); });
      }
    }
  }
}

}  // namespace cohort::test
