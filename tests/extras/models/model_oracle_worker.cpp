// Run by tests/e2e/models: models beside Python's. Arguments of each worker: a model's name, what its line says, and the model's
// options (made_models.h).
#include <ATen/autocast_mode.h>
#include <torch/nn/functional/loss.h>

#include <cstdio>
#include <optional>
#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/recovery/skip_init.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/extras/models/channels_last.h"
#include "cohort/models/gpt.h"
#include "cohort/models/pretrained.h"
#include "tests/extras/models/made_models.h"
#include "tests/support/rank_processes.h"

namespace {

using cohort::checkpoint::StateDict;
using cohort::test::MadeModel;

const std::string& argument(size_t i) { return cohort::test::worker_arguments().at(i); }

MadeModel model_of(size_t num_others) {
  const auto& arguments = cohort::test::worker_arguments();
  return cohort::test::make_model(argument(0), cohort::test::settings_of(std::span(arguments).subspan(1 + num_others)));
}

class Bfloat16 {
 public:
  Bfloat16() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Bfloat16() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
};

}  // namespace

// Prints names and shapes.
COHORT_WORKER(model_shapes) {
  const cohort::checkpoint::SkipInit skip;
  const MadeModel model = model_of(0);
  for (const auto& item : cohort::checkpoint::state_dict(*model.module)) {
    std::printf("%s %s\n", item.key().c_str(), c10::str(item.value().sizes()).c_str());
  }
}

// SEED FILE: the values that the model begins with.
COHORT_WORKER(model_seeded) {
  torch::manual_seed(std::stoull(argument(1)));
  const MadeModel model = model_of(2);
  cohort::checkpoint::save_file(cohort::checkpoint::state_dict(*model.module), argument(2), {},
                                {.shared_tensors = cohort::checkpoint::SharedTensors::kSaveEach});
}

// WEIGHTS INPUTS RESULTS LAYOUT: evaluation, then a forward and backward pass; "plain", "channels_last" or "bfloat16".
COHORT_WORKER(model_passes) {
  const MadeModel model = model_of(4);
  cohort::models::load_pretrained(*model.module, argument(1));
  const StateDict inputs = cohort::checkpoint::load_file(argument(2));
  at::Tensor input = inputs["input"];
  if (argument(4) != "plain" && input.dim() == 4) {
    cohort::models::to_channels_last(*model.module);
    input = input.contiguous(at::MemoryFormat::ChannelsLast);
  }
  std::optional<Bfloat16> autocast;
  if (argument(4) == "bfloat16") autocast.emplace();
  StateDict results;
  model.module->eval();
  results.insert("evaluated", model.forward(input).detach().to(at::kFloat));
  model.module->train();
  const at::Tensor output = model.forward(input);
  const at::Tensor loss = torch::nn::functional::cross_entropy(output.flatten(0, -2), inputs["target"].flatten());
  autocast.reset();
  loss.backward();
  results.insert("output", output.detach().to(at::kFloat));
  results.insert("loss", loss.detach().to(at::kFloat));
  for (const auto& item : model.module->named_parameters()) results.insert("grad." + item.key(), item.value().grad());
  for (const auto& item : model.module->named_buffers()) results.insert("buffer." + item.key(), item.value());
  cohort::checkpoint::save_file(results, argument(3), {},
                                {.shared_tensors = cohort::checkpoint::SharedTensors::kSaveEach});
}

// WEIGHTS RESULTS: what the model has after load_pretrained, whose report is printed.
COHORT_WORKER(model_pretrained) {
  const MadeModel model = model_of(2);
  std::printf("%s\n", cohort::models::load_pretrained(*model.module, argument(1)).text().c_str());
  cohort::checkpoint::save_file(cohort::checkpoint::state_dict(*model.module), argument(2), {},
                                {.shared_tensors = cohort::checkpoint::SharedTensors::kSaveEach});
}

// WEIGHTS INPUTS RESULTS: the likeliest tokens that follow.
COHORT_WORKER(gpt_generate) {
  const MadeModel model = model_of(3);
  cohort::models::load_pretrained(*model.module, argument(1));
  const StateDict inputs = cohort::checkpoint::load_file(argument(2));
  StateDict results;
  results.insert("tokens", model.module->as<cohort::models::GPT>()->generate(
                               inputs["input"], {.max_new_tokens = 40, .temperature = 0.0}));
  cohort::checkpoint::save_file(results, argument(3));
}
