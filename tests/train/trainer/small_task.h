// A small task with dropout and batch norm, and data for it.
#pragma once

#include <ATen/Functions.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <string>
#include <vector>

#include "cohort/data/datasets/tensor_dataset.h"
#include "cohort/data/loader/data_loader.h"
#include "cohort/parallel/optim/fused_optimizers.h"
#include "cohort/train/trainer/callback.h"
#include "cohort/train/trainer/trainer.h"

namespace cohort::train::test {

inline std::string text_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const c10::Error*>(&error);
  return known ? known->what_without_backtrace() : error.what();
}

inline TrainerOptions quiet(TrainerOptions options) {
  options.progress = false;
  return options;
}

template <class Error = c10::Error>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return text_of(error);
  }
  return "no error";
}

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  explicit NetImpl(double drop = 0.2) : drop_(drop) { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    dropout = register_module("dropout", torch::nn::Dropout(drop_));
    second = register_module("second", torch::nn::Linear(16, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second(dropout(at::relu(norm(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};

 private:
  double drop_;
};
TORCH_MODULE(Net);

/// What the loss of a batch of up to 21 rows comes from, one after the other: layers, softmax, mean.
constexpr int64_t kSmallSums = 6 + 2 + 16 + 3 + 21;

// Counts right answers on this rank; the sum over ranks is what trainer tests of several ranks look at.
struct Accuracy {
  void update(const at::Tensor& scores, const at::Tensor& labels) {
    right += scores.argmax(1).eq(labels).sum().item<double>();
    all += static_cast<double>(labels.size(0));
  }
  double compute() const { return right / all; }
  void reset() { right = all = 0; }
  double right = 0, all = 0;
};

struct SmallTask {
  explicit SmallTask(double drop = 0.2, double rate = 0.05)
      : model(make(drop)), optimizer(model->parameters(), torch::optim::SGDOptions(rate).momentum(0.9)) {}
  static Net make(double drop) {
    at::manual_seed(11);
    return Net(drop);
  }
  at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
    return torch::nn::functional::cross_entropy(scores, labels);
  }

  Net model;
  optim::SGD optimizer;
  std::vector<Schedule> schedulers = {};
  std::vector<TaskMetric> metrics = {{"accuracy", Accuracy()}};
};

inline data::TensorDataset<2> small_data(int64_t count, uint64_t seed = 3) {
  auto generator = data::make_generator(static_cast<int64_t>(seed));
  const at::Tensor x = at::randn({count, 6}, generator);
  return data::TensorDataset(x, x.slice(1, 0, 3).argmax(1));
}
using Loader = data::DataLoader<data::TensorDataset<2>>;

inline std::vector<at::Tensor> weights_of(const torch::nn::Module& net) {
  std::vector<at::Tensor> weights;
  for (const auto& each : net.parameters()) weights.push_back(each.detach().clone());
  for (const auto& each : net.buffers()) weights.push_back(each.detach().clone());
  return weights;
}

inline bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!at::equal(a[i], b[i])) return false;
  }
  return a.size() == b.size();
}

// Keeps each batch's loss, and ends training after so many steps.
struct Watch : Callback {
  explicit Watch(int64_t last_step = 0) : stop_at(last_step) {}
  void on_train_batch_end(Trainer& trainer, const StepReport& report) override {
    losses.push_back(report.loss.item<double>());
    if (stop_at > 0 && trainer.step() == stop_at) trainer.stop("watch");
  }
  int64_t stop_at;
  std::vector<double> losses;
};

}  // namespace cohort::train::test
