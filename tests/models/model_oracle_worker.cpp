// Run by tests/e2e/models/models_test.py: one forward and backward pass of a model on weights and inputs from a file.
#include <torch/nn/functional/loss.h>

#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/models/gpt.h"
#include "cohort/models/resnet.h"
#include "tests/support/rank_processes.h"

namespace {

template <typename Model>
void run_model(Model model, const cohort::checkpoint::StateDict& given, const std::string& output_path) {
  cohort::checkpoint::StateDict weights;
  for (const auto& item : given) {
    if (!item.key().starts_with("given.")) weights.insert(item.key(), item.value());
  }
  cohort::checkpoint::load_state_dict(*model, weights);
  const at::Tensor output = model->forward(given["given.input"]);
  const at::Tensor flat = output.reshape({-1, output.size(-1)});
  const at::Tensor loss = torch::nn::functional::cross_entropy(flat, given["given.target"].flatten());
  loss.backward();
  cohort::checkpoint::StateDict results;
  results.insert("output", output.detach());
  results.insert("loss", loss.detach());
  for (const auto& item : model->named_parameters()) results.insert("grad." + item.key(), item.value().grad());
  for (const auto& item : model->named_buffers()) results.insert("buffer." + item.key(), item.value());
  cohort::checkpoint::save_file(results, output_path);
}

}  // namespace

COHORT_WORKER(model_oracle) {
  const auto& arguments = cohort::test::worker_arguments();
  const cohort::checkpoint::StateDict given = cohort::checkpoint::load_file(arguments.at(1));
  if (arguments.at(0) == "gpt") {
    run_model(cohort::models::GPT(cohort::models::GPTOptions{
                  .block_size = 16, .vocab_size = 65, .n_layer = 2, .n_head = 4, .n_embd = 32}),
              given, arguments.at(2));
  } else {
    run_model(cohort::models::resnet18({.num_classes = 10, .width = 16, .is_small_input = true}), given,
              arguments.at(2));
  }
}

COHORT_WORKER(gpt_generate) {
  const auto& arguments = cohort::test::worker_arguments();
  const cohort::checkpoint::StateDict given = cohort::checkpoint::load_file(arguments.at(0));
  cohort::models::GPT model(
      cohort::models::GPTOptions{.block_size = 16, .vocab_size = 65, .n_layer = 2, .n_head = 4, .n_embd = 32});
  cohort::checkpoint::StateDict weights;
  for (const auto& item : given) {
    if (!item.key().starts_with("given.")) weights.insert(item.key(), item.value());
  }
  cohort::checkpoint::load_state_dict(*model, weights);
  cohort::checkpoint::StateDict results;
  results.insert("tokens", model->generate(given["given.input"], {.max_new_tokens = 40, .temperature = 0.0}));
  cohort::checkpoint::save_file(results, arguments.at(1));
}
