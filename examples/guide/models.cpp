// The programs of docs/guide/models.md (tests/tools/guide_test.py compares them), each run by two ranks.
#include <cohort/checkpoint/file/safetensors.h>
#include <cohort/checkpoint/file/torch_file.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/comm/group/process_group.h>
#include <cohort/extras/models/channels_last.h>
#include <cohort/extras/models/resnet.h>
#include <cohort/extras/models/small_models.h>
#include <cohort/extras/models/vision_transformer.h>
#include <cohort/models/gpt.h>
#include <cohort/models/pretrained.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "guide.h"

namespace guide {
namespace {

namespace models = cohort::models;

void fine_tune(const std::string& path) {
  models::ResNet net = models::load_pretrained_model([] { return models::resnet50d({.num_classes = 10}); }, path);
  cohort::DistributedDataParallel model(net);
  torch::optim::Adam optimizer(model->parameters(), 1e-4);

  const at::Tensor images = torch::randn({2, 3, 64, 64}), labels = torch::randint(10, {2});
  torch::nn::functional::cross_entropy(model(images), labels).backward();
  optimizer.step();
}

void say_what_was_made_to_fit(const std::string& path) {
  models::ResNet net = models::resnet50d({.num_classes = 10, .in_channels = 1});
  const models::PretrainedReport report = models::load_pretrained(*net, path);
  std::cout << report.text() << "\n";
}

void take_what_fits(const std::string& path, models::ResNet net) {
  const models::PretrainedReport report = models::load_pretrained(*net, path, {.use_ema = false, .strict = false});
  for (const std::string& key : report.missing_keys) std::cout << key << " is newly initialized\n";
}

void small_images() {
  models::ResNet net = models::resnet18({.num_classes = 10, .width = 16, .is_small_input = true, .drop_rate = 0.1});
  const at::Tensor scores = net(torch::randn({8, 3, 32, 32}));                      // [8, 10]
  const at::Tensor features = net->forward_features(torch::randn({8, 3, 32, 32}));  // [8, 128, 4, 4]
  net->reset_classifier(100);
  TORCH_CHECK(scores.size(1) == 10 && features.size(2) == 4 && net->forward_head(features).size(1) == 100);
}

void larger_images(const std::string& path) {
  models::VisionTransformer vit =
      models::load_pretrained_model([] { return models::vit_tiny({.num_classes = 10, .image_size = 96}); }, path);
  TORCH_CHECK(vit(torch::randn({1, 3, 96, 96})).size(1) == 10);
}

void write_text(const std::string& path, const at::Tensor& prompt) {
  models::GPTOptions options = models::gpt2_options("gpt2");  // OpenAI's smallest model
  options.block_size = 256;                                   // its first 256 positions are enough
  models::GPT gpt = models::load_pretrained_model([&] { return models::GPT(options); }, path);
  const at::Tensor text = gpt->generate(prompt, {.max_new_tokens = 2, .temperature = 0.8, .top_k = 200});
  TORCH_CHECK(text.size(1) == prompt.size(1) + 2);
}

void train_in_bfloat16_layout() {
  models::ResNet net = models::resnet18({.num_classes = 10, .is_small_input = true});
  models::to_channels_last(*net);
  const at::Tensor images = torch::randn({4, 3, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast);
  net(images).sum().backward();
}

// A model of your own, which also loads files with another number of classes.
struct OwnNetImpl : torch::nn::Module, models::Pretrainable {
  explicit OwnNetImpl(int64_t num_classes) {
    body = register_module("body", models::ImageClassifier());
    head = register_module("head", torch::nn::Linear(10, num_classes));
  }
  at::Tensor forward(const at::Tensor& images) { return head(body(images)); }

  std::string classifier_name() const override { return "head"; }
  void init_classifier() override { head->reset_parameters(); }

  models::ImageClassifier body{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(OwnNet);

void load_into_an_own_net(const std::string& path) {
  OwnNet net = models::load_pretrained_model([] { return OwnNet(3); }, path);
  TORCH_CHECK(net(torch::randn({1, 3, 8, 8})).size(1) == 3);
}

}  // namespace

void run_models() {
  cohort::init_process_group();
  const std::string path =
      (std::filesystem::temp_directory_path() / ("cohort_guide_" + std::to_string(getpid()))).string();
  const auto save = [&](const torch::nn::Module& net) {
    cohort::checkpoint::save_file(cohort::checkpoint::state_dict(net), path);
  };
  save(*models::resnet50d({.num_classes = 20}));
  fine_tune(path);
  say_what_was_made_to_fit(path);
  take_what_fits(path, models::resnet50d({.num_classes = 20}));
  small_images();
  save(*models::vit_tiny({.num_classes = 20, .image_size = 64}));
  larger_images(path);
  if (const char* const file = std::getenv("GUIDE_GPT2")) write_text(file, torch::randint(50257, {1, 4}));
  train_in_bfloat16_layout();
  save(*OwnNet(5));
  load_into_an_own_net(path);
  std::filesystem::remove(path);
  cohort::destroy_process_group();
}

}  // namespace guide
