#include "tests/extras/models/made_models.h"

#include "cohort/extras/models/resnet.h"
#include "cohort/extras/models/small_models.h"
#include "cohort/extras/models/vision_transformer.h"
#include "cohort/models/gpt.h"

namespace cohort::test {
namespace {

using namespace cohort::models;

const std::map<std::string, ResNet (*)(ResNetOptions)> kResNets = {{"resnet18", resnet18},
                                                                   {"resnet34", resnet34},
                                                                   {"resnet50", resnet50},
                                                                   {"resnet101", resnet101},
                                                                   {"resnet152", resnet152},
                                                                   {"resnet18d", resnet18d},
                                                                   {"resnet34d", resnet34d},
                                                                   {"resnet50d", resnet50d},
                                                                   {"resnet101d", resnet101d},
                                                                   {"wide_resnet50_2", wide_resnet50_2},
                                                                   {"wide_resnet101_2", wide_resnet101_2},
                                                                   {"resnext50_32x4d", resnext50_32x4d},
                                                                   {"resnext101_32x8d", resnext101_32x8d},
                                                                   {"resnext101_64x4d", resnext101_64x4d}};
const std::map<std::string, VisionTransformer (*)(VisionTransformerOptions)> kViTs = {
    {"vit_tiny", vit_tiny}, {"vit_small", vit_small}, {"vit_base", vit_base}};

class Settings {
 public:
  explicit Settings(ModelSettings settings) : settings_(std::move(settings)) {}
  int64_t take(const std::string& name, int64_t otherwise) {
    const auto node = settings_.extract(name);
    return node.empty() ? otherwise : node.mapped();
  }
  ~Settings() noexcept(false) { TORCH_CHECK(settings_.empty(), "no such setting: ", settings_.begin()->first); }

 private:
  ModelSettings settings_;
};

template <typename Holder>
MadeModel made(Holder model) {
  return {model.ptr(), [model](const at::Tensor& x) mutable { return model->forward(x); }};
}

MadeModel make_resnet_named(const std::string& name, const ModelSettings& given) {
  Settings settings(given);
  ResNetOptions options;
  options.num_classes = settings.take("num_classes", options.num_classes);
  options.in_channels = settings.take("in_channels", options.in_channels);
  options.width = settings.take("width", options.width);
  options.is_small_input = settings.take("is_small_input", 0) != 0;
  if (const int64_t zeros = settings.take("zero_init_last", -1); zeros >= 0) options.zero_init_last = zeros != 0;
  return made(kResNets.at(name)(options));
}

MadeModel make_vit_named(const std::string& name, const ModelSettings& given) {
  Settings settings(given);
  VisionTransformerOptions options;
  options.num_classes = settings.take("num_classes", options.num_classes);
  options.in_channels = settings.take("in_channels", options.in_channels);
  options.image_size = settings.take("image_size", options.image_size);
  options.patch_size = settings.take("patch_size", options.patch_size);
  return made(kViTs.at(name)(options));
}

MadeModel make_gpt_named(const ModelSettings& given) {
  Settings settings(given);
  GPTOptions options{.block_size = 16, .vocab_size = 65, .n_layer = 2, .n_head = 4, .n_embd = 32};
  options.block_size = settings.take("block_size", options.block_size);
  options.tie_weights = settings.take("tie_weights", 0) != 0;
  options.bias = settings.take("bias", 1) != 0;
  return made(GPT(options));
}

}  // namespace

ModelSettings settings_of(std::span<const std::string> arguments) {
  ModelSettings settings;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    settings[argument.substr(0, equals)] = std::stoll(argument.substr(equals + 1));
  }
  return settings;
}

MadeModel make_model(const std::string& name, const ModelSettings& settings) {
  if (kResNets.contains(name)) return make_resnet_named(name, settings);
  if (kViTs.contains(name)) return make_vit_named(name, settings);
  if (name == "gpt") return make_gpt_named(settings);
  if (name == "SimpleModel") return made(SimpleModel());
  if (name == "ToyModel") return made(ToyModel());
  if (name == "ToyMpModel") return made(ToyMpModel(at::kCPU, at::kCPU));
  if (name == "ImageClassifier") return made(ImageClassifier());
  TORCH_CHECK(name == "TrainModel", "no model ", name);
  return made(TrainModel());
}

}  // namespace cohort::test
