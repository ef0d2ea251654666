// data-parallel: a training step of a compute-bound CNN with DataParallel and two replicas on the CPU, beside the module alone.
// Both have one thread per replica, in one process, and take steps in turn. Gradients are compared before anything is timed.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <memory>

#include "benchmarks/support/question.h"
#include "benchmarks/support/turn_order.h"
#include "cohort/parallel/data_parallel/data_parallel.h"

namespace cohort::bench {
namespace {

struct CnnImpl : torch::nn::Cloneable<CnnImpl> {
  CnnImpl() { CnnImpl::reset(); }
  void reset() override {
    const auto convolution = [](int64_t inputs, int64_t outputs, int64_t stride) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(inputs, outputs, 3).stride(stride).padding(1));
    };
    first = register_module("first", convolution(3, 64, 1));
    second = register_module("second", convolution(64, 64, 1));
    third = register_module("third", convolution(64, 128, 2));
    head = register_module("head", torch::nn::Linear(128, 10));
  }
  at::Tensor forward(const at::Tensor& images) {
    return head(third(second(first(images).relu()).relu()).relu().mean({2, 3}));
  }
  torch::nn::Conv2d first{nullptr}, second{nullptr}, third{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Cnn);

class CnnTraining {
 public:
  explicit CnnTraining(size_t num_replicas)
      : parallel_(net_, nn::parallel::Devices(num_replicas, at::kCPU)),
        optimizer_(net_->parameters(), 1e-4),
        is_parallel_(num_replicas > 1) {
    torch::manual_seed(3);
    const at::NoGradGuard no_grad;
    for (auto& parameter : net_->parameters()) parameter.uniform_(-0.05, 0.05);
    images_ = at::randn({32, 3, 32, 32});
    labels_ = at::randint(10, {32}, at::kLong);
  }

  double time_step(int num_threads = 1) {
    at::set_num_threads(num_threads);
    const auto begin = std::chrono::steady_clock::now();
    optimizer_.zero_grad();
    const auto scores = is_parallel_ ? parallel_(images_) : net_(images_);
    torch::nn::functional::cross_entropy(scores, labels_).backward();
    optimizer_.step();
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
    return elapsed.count();
  }

  at::Tensor gradients() const {
    std::vector<at::Tensor> flat;
    for (const auto& parameter : net_->parameters()) flat.push_back(parameter.grad().reshape(-1));
    return at::cat(flat);
  }

 private:
  Cnn net_;
  DataParallel<CnnImpl> parallel_;
  torch::optim::SGD optimizer_;
  bool is_parallel_;
  at::Tensor images_;
  at::Tensor labels_;
};

}  // namespace

std::vector<Row> run_data_parallel(const Settings& settings) {
  CnnTraining two(2), one(1);
  two.time_step();
  one.time_step();
  TORCH_CHECK(at::allclose(two.gradients(), one.gradients(), 1e-3, 1e-5),
              "gradients of two replicas and of one differ");
  const auto times = measure_in_turns({[&] { return two.time_step(); }, [&] { return one.time_step(); },
                                       [&] { return one.time_step(/*num_threads=*/2); }},
                                      settings.is_quick ? 20 : 100);
  std::vector<Row> rows{compare_times(times[0], times[1]), compare_times(times[0], times[2]), Row()};
  rows[0].rival_name = "one-replica";
  rows[1].rival_name = "one-replica-2-threads";
  rows[2].rival_name = "python-data-parallel";
  rows[2].ours = rows[0].ours;
  rows[2].note = "Python's DataParallel does not run on the CPU";
  for (Row& row : rows) {
    row.case_name = "cnn/replicas=2";
    row.unit = "ms";
  }
  return rows;
}

}  // namespace cohort::bench
