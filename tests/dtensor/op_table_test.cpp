// Every operation of the table with its inputs lying in every way, results and gradients against one process: on meshes of
// threads, whose groups are on shm. It is what users get by default, and five times as fast as Gloo with so many small
// operations; what DTensors ask of a backend runs on both in the other tests.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <random>
#include <stdexcept>

#include "cohort/comm/shm/make_shm_backend.h"
#include "cohort/dtensor/api/dtensor.h"
#include "tests/dtensor/op_cases.h"
#include "tests/mesh/thread_mesh.h"

namespace cohort {
namespace {

using test::OpCase;
using test::run_rank_threads;
using test::Tensors;
using test::thread_mesh;

// `seed`: which of the rarer kinds; summands only, where an operation in place needs them.
Placements choices_for(const at::Tensor& tensor, size_t seed, bool is_in_place) {
  Placements choices{Replicate()};
  const auto ndim = static_cast<size_t>(tensor.dim());
  for (size_t dim = 0; dim < ndim; ++dim) choices.emplace_back(Shard(static_cast<int64_t>(dim)));
  if (ndim > 0) choices.emplace_back(StridedShard(static_cast<int64_t>(seed % ndim), 2));
  if (!tensor.is_floating_point()) return choices;
  constexpr const char* kRareReductions[] = {"avg", "max", "min"};
  choices.emplace_back(Partial());
  choices.emplace_back(Partial(kRareReductions[is_in_place ? 0 : seed % std::size(kRareReductions)]));
  return choices;
}

// The same, with gaps between a part's numbers in memory.
DTensor with_gaps(const DTensor& tensor) {
  const auto spec = tensor.spec();
  const auto own = DTensor(tensor.detach()).to_local();
  const auto part = at::stack({own, at::full_like(own, 9)}, -1).select(-1, 0);
  const DTensor result =
      DTensor::from_local(part, spec.mesh(), spec.placements(), {.shape = spec.shape(), .stride = spec.stride()});
  return DTensor(result.set_requires_grad(tensor.requires_grad()));
}

// Others no tensor can have.
bool reduces_in_one_way(const Placements& placements) {
  const auto is_average = [](const std::string& op) { return op == "avg" || op == "sum"; };
  std::string first;
  for (const auto& placement : placements) {
    if (!placement.is_partial()) continue;
    const auto op = is_average(placement.reduce_op()) ? "sum" : placement.reduce_op();
    if (!first.empty() && first != op) return false;
    first = op;
  }
  return true;
}

// How each input lies on each axis. All ways if they are not too many, else some of them.
using Lying = std::vector<Placements>;

std::vector<Lying> ways_to_lie(const OpCase& one, int64_t num_axes, size_t limit) {
  std::vector<Placements> slots;  // input by input, axis by axis
  const size_t seed = std::hash<std::string>()(one.name);
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    slots.insert(slots.end(), num_axes, choices_for(one.inputs[i], seed + i, one.is_in_place));
  }
  size_t count = 1;
  for (const auto& slot : slots) count *= slot.size();
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<Lying> ways;
  for (size_t i = 0; i < std::min(count, limit); ++i) {
    size_t rest = count <= limit ? i : random() % count;
    Lying lying(one.inputs.size());
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      lying[slot / num_axes].push_back(slots[slot][rest % slots[slot].size()]);
      rest /= slots[slot].size();
    }
    if (std::all_of(lying.begin(), lying.end(), reduces_in_one_way)) ways.push_back(std::move(lying));
  }
  return ways;
}

// The numbers by which gradients are made: other ones for each element.
at::Tensor loss_of(const Tensors& results) {
  at::Tensor loss;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!results[i].requires_grad()) continue;
    const auto term = (results[i] * test::numbers(results[i].sizes(), 7 + static_cast<int64_t>(i))).sum();
    loss = loss.defined() ? loss + term : term;
  }
  return loss;
}

// Results, then the gradients of the inputs that have one.
struct Outcome {
  Tensors results, gradients;
};

Outcome outcome_of(const OpCase& one, const Tensors& inputs) {
  Outcome outcome{one.run(inputs), {}};
  const auto loss = loss_of(outcome.results);
  Tensors differentiable;
  for (const auto& input : inputs) {
    if (input.requires_grad()) differentiable.push_back(input);
  }
  if (loss.defined()) {
    outcome.gradients = torch::autograd::grad({loss}, differentiable, {}, std::nullopt, false, /*allow_unused=*/true);
  }
  return outcome;
}

at::Tensor leaf(const at::Tensor& tensor) { return tensor.clone().set_requires_grad(tensor.is_floating_point()); }

void compare(const Tensors& actual, const Tensors& expected, const char* what) {
  if (actual.size() != expected.size()) throw std::runtime_error("another number of " + std::string(what));
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i].defined() != expected[i].defined()) throw std::runtime_error(std::string(what) + " undefined");
    if (!actual[i].defined()) continue;
    if (!is_dtensor(actual[i])) throw std::runtime_error(std::string(what) + " is a plain tensor");
    const auto full = DTensor(actual[i].detach()).full_tensor();
    if (full.sizes() != expected[i].sizes() || full.dtype() != expected[i].dtype()) {
      throw std::runtime_error(c10::str(what, " ", i, " has sizes ", full.sizes(), " not ", expected[i].sizes()));
    }
    if (!at::allclose(full, expected[i].detach(), 1e-9, 1e-9, /*equal_nan=*/true)) {
      throw std::runtime_error(c10::str(what, " ", i, " lies as ", to_string(DTensor(actual[i]).placements()), ", is\n",
                                        full, "\nnot\n", expected[i]));
    }
  }
}

std::string text_of(const OpCase& one, const Lying& lying) {
  std::string text = one.name;
  for (const auto& placements : lying) text += " " + to_string(placements);
  return text;
}

void try_case(const OpCase& one, const DeviceMesh& mesh, size_t limit) {
  Tensors plain;
  for (const auto& input : one.inputs) plain.push_back(leaf(input));
  const auto expected = outcome_of(one, plain);
  bool has_gaps = false;
  for (const auto& lying : ways_to_lie(one, mesh.ndim(), limit)) {
    has_gaps = !has_gaps;
    try {
      Tensors inputs;
      for (size_t i = 0; i < plain.size(); ++i) {
        const DTensor input = distribute_tensor(leaf(one.inputs[i]), mesh, lying[i], std::nullopt);
        inputs.push_back(has_gaps ? with_gaps(input) : input);
      }
      const auto actual = outcome_of(one, inputs);
      compare(actual.results, expected.results, "result");
      compare(actual.gradients, expected.gradients, "gradient");
    } catch (const std::exception& error) {
      throw std::runtime_error(text_of(one, lying) + ": " + error.what());
    }
  }
}

void try_cases(const std::vector<OpCase>& cases) {
  struct Mesh {
    std::vector<int64_t> shape;
    size_t limit;
  };
  for (const Mesh& kind : {Mesh{{2}, 100}, Mesh{{4}, 25}, Mesh{{2, 2}, 30}}) {
    int size = 1;
    for (const int64_t ranks : kind.shape) size *= static_cast<int>(ranks);
    run_rank_threads(size,
                     [&](int, const Group& group) {
                       const auto mesh = thread_mesh(group, kind.shape);
                       std::string failures;
                       for (const auto& one : cases) {
                         try {
                           try_case(one, mesh, kind.limit);
                         } catch (const std::exception& error) {
                           failures += std::string(error.what()).substr(0, 900) + "\n\n";
                         }
                       }
                       if (!failures.empty()) throw std::runtime_error(failures);
                     },
                     {.make_backend = comm::make_shm_backend});
  }
}

TEST(DTensorOperations, Pointwise) { try_cases(test::pointwise_cases()); }
TEST(DTensorOperations, RarePointwise) { try_cases(test::rare_pointwise_cases()); }
TEST(DTensorOperations, InPlace) { try_cases(test::in_place_cases()); }
TEST(DTensorOperations, Views) { try_cases(test::view_cases()); }
TEST(DTensorOperations, Parts) { try_cases(test::part_cases()); }
TEST(DTensorOperations, Selections) { try_cases(test::selection_cases()); }
TEST(DTensorOperations, Searches) { try_cases(test::search_cases()); }
TEST(DTensorOperations, Indices) { try_cases(test::index_cases()); }
TEST(DTensorOperations, BordersAndDiagonals) { try_cases(test::border_cases()); }
TEST(DTensorOperations, Reductions) { try_cases(test::reduction_cases()); }
TEST(DTensorOperations, Matrices) { try_cases(test::matrix_cases()); }
TEST(DTensorOperations, Networks) { try_cases(test::network_cases()); }
TEST(DTensorOperations, Losses) { try_cases(test::loss_cases()); }
TEST(DTensorOperations, ComplexNumbers) { try_cases(test::complex_cases()); }
TEST(DTensorOperations, Creation) { try_cases(test::creation_cases()); }

}  // namespace
}  // namespace cohort
