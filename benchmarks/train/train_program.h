/// The programs that `train` measures, in C++: the code that hand-written loops (train_rank.cpp) and a Trainer (trainer_rank.cpp)
/// share. train_rank.py has the same models, weights, data and optimizers. Needs LibTorch.
#pragma once

#include <torch/nn/functional/loss.h>

#include <chrono>
#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/set_weights.h"
#include "cohort/data/datasets/token_file_dataset.h"
#include "cohort/extras/data/datasets/cifar.h"
#include "cohort/extras/data/transforms/to_tensor.h"
#include "cohort/extras/data/transforms/transformed_dataset.h"
#include "cohort/extras/models/resnet.h"
#include "cohort/models/gpt.h"
#include "cohort/parallel/optim/fused_optimizers.h"

namespace cohort::bench {

/// The arguments after "copy TRAINEE" in a command.
struct TrainRequest {
  std::string model;
  int num_workers = 0;
  int64_t batch_size = 1;
  /// CIFAR-10's root folder, or a file of tokens.
  std::string data;
};
inline TrainRequest read_train_request(std::istream& words) {
  TrainRequest request;
  words >> request.model >> request.num_workers >> request.batch_size >> request.data;
  return request;
}

/// Milliseconds of a step, by part. An answer has four numbers per step.
struct TrainParts {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double step = 0;
};
std::string train_answer(const std::vector<TrainParts>& steps);

/// Returns the milliseconds since the last call.
class TrainLap {
 public:
  double operator()() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::milli> elapsed = now - last_;
    last_ = now;
    return elapsed.count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// ResNet-18 for images of 32x32, trained with SGD and momentum.
struct ImageProgram {
  using Net = models::ResNet;
  static Net make_net() { return models::resnet18({.num_classes = 10, .is_small_input = true}); }
  static auto make_optimizer(Net& net) {
    return std::make_unique<optim::SGD>(net->parameters(),
                                        torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(5e-4));
  }
  static auto make_dataset(const TrainRequest& request) {
    return data::TransformedDataset(
        data::CIFAR10(request.data),
        data::Compose({data::ToTensor(), data::Normalize({0.4914, 0.4822, 0.4465}, {0.247, 0.2435, 0.2616})}));
  }
  static at::Tensor loss(const at::Tensor& scores, const at::Tensor& labels) {
    return torch::nn::functional::cross_entropy(scores, labels);
  }
};

/// A GPT of bytes with 25 M parameters, trained with AdamW.
struct TextProgram {
  using Net = models::GPT;
  static Net make_net() {
    return models::GPT(models::GPTOptions{.block_size = 256, .n_layer = 8, .n_head = 8, .n_embd = 512});
  }
  static auto make_optimizer(Net& net) {
    return std::make_unique<optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(3e-4));
  }
  static auto make_dataset(const TrainRequest& request) {
    return data::TokenFileDataset(request.data,
                                  {.context_length = 128, .vocab_size = 256, .format = data::TokenFileFormat::kUInt16});
  }
  static at::Tensor loss(const at::Tensor& scores, const at::Tensor& targets) {
    return torch::nn::functional::cross_entropy(scores.flatten(0, 1), targets.flatten());
  }
};

template <class Program>
typename Program::Net make_train_net() {
  auto net = Program::make_net();
  set_weights(*net);
  return net;
}

/// Calls `fn` with the program that the request names.
template <class Fn>
decltype(auto) with_train_program(const TrainRequest& request, Fn fn) {
  return request.model == "resnet18" ? fn(ImageProgram{}) : fn(TextProgram{});
}

/// Numbers in which all sides must agree: the losses of their first steps, and two sums of the parameters after them.
constexpr int kTrainVerifiedSteps = 2;
std::string train_sums(const std::vector<double>& losses, const std::vector<at::Tensor>& parameters);

}  // namespace cohort::bench
