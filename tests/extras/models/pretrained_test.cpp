#include "cohort/models/pretrained.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "cohort/checkpoint/file/safetensors.h"
#include "cohort/checkpoint/file/torch_file.h"
#include "cohort/checkpoint/state/state_dict.h"
#include "cohort/extras/models/resnet.h"
#include "cohort/extras/models/small_models.h"
#include "cohort/extras/models/vision_transformer.h"
#include "cohort/models/gpt.h"
#include "tests/checkpoint/temporary_folder.h"

namespace cohort::models {
namespace {

using checkpoint::StateDict;

ResNet make_narrow(int64_t num_classes) { return resnet18({.num_classes = num_classes, .width = 8}); }

std::string load_error(torch::nn::Module& model, const std::string& path, const LoadPretrainedOptions& options = {}) {
  try {
    load_pretrained(model, path, options);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

class PretrainedTest : public ::testing::Test {
 protected:
  std::string save(const StateDict& tensors, const std::string& name = "weights.safetensors") {
    checkpoint::save_file(tensors, folder_.file(name));
    return folder_.file(name);
  }
  std::string save(const torch::nn::Module& model) { return save(checkpoint::state_dict(model)); }

  test::TemporaryFolder folder_;
};

bool has_same_values(const torch::nn::Module& a, const torch::nn::Module& b) {
  const StateDict ours = checkpoint::state_dict(a), theirs = checkpoint::state_dict(b);
  if (ours.keys() != theirs.keys()) return false;
  for (const auto& item : ours) {
    if (!at::equal(item.value(), theirs[item.key()])) return false;
  }
  return true;
}

StateDict without(const StateDict& state, const std::string& name) {
  StateDict rest;
  for (const auto& item : state) {
    if (item.key() != name) rest.insert(item.key(), item.value());
  }
  return rest;
}

TEST_F(PretrainedTest, MakesTheModelOfTheFile) {
  const ResNet trained = make_narrow(10);
  const std::string path = save(*trained);
  ResNet model = load_pretrained_model([] { return make_narrow(10); }, path);
  EXPECT_TRUE(has_same_values(*model, *trained));
}

TEST_F(PretrainedTest, DrawsNumbersForTheClassifierOnly) {
  const std::string path = save(*make_narrow(10));
  torch::manual_seed(5);
  ResNet model = load_pretrained_model([] { return make_narrow(3); }, path);
  torch::manual_seed(5);
  const torch::nn::Linear expected(64, 3);
  EXPECT_TRUE(at::equal(model->fc->weight, expected->weight));
  EXPECT_TRUE(at::equal(model->fc->bias, expected->bias));
}

TEST_F(PretrainedTest, ClassifiersOfVisionTransformersBeginAsTimms) {
  const VisionTransformerOptions options{
      .num_classes = 10, .image_size = 16, .embed_dim = 64, .depth = 1, .num_heads = 2};
  const std::string path = save(*VisionTransformer(options));
  auto of_others = options;
  of_others.num_classes = 100;
  const auto model = load_pretrained_model([&] { return VisionTransformer(of_others); }, path);
  EXPECT_NEAR(model->head->weight.std().item<double>(), 0.02, 0.002);
  EXPECT_EQ(model->head->bias.abs().max().item<double>(), 0.0);
}

TEST_F(PretrainedTest, ReportSaysWhatWasMadeToFit) {
  const std::string path = save(*resnet18({.num_classes = 10, .width = 8}));
  ResNet model = resnet18({.num_classes = 3, .in_channels = 1, .width = 8});
  const PretrainedReport report = load_pretrained(*model, path);
  EXPECT_EQ(report.text(), "120 tensors of \"" + path +
                               "\"\n  \"fc\": newly initialized: the file's is for 10 classes, the model's for 3\n"
                               "  \"conv1.weight\": summed up from 3 channels to 1");
}

TEST_F(PretrainedTest, KnowsTheLayersOfOthersModelsByOptions) {
  const auto make = [](int64_t channels, int64_t classes) {
    return torch::nn::Sequential(torch::nn::Conv2d(channels, 4, 3), torch::nn::Linear(8, classes));
  };
  auto trained = make(3, 10);
  const std::string path = save(*trained);
  auto model = make(6, 2);
  EXPECT_EQ(load_error(*model, path),
            "[cohort] load_pretrained: \"" + path +
                "\" does not fit the model:\n"
                "  \"0.weight\" has shape [4, 3, 3, 3] in the file, [4, 6, 3, 3] in the model\n"
                "  \"1.weight\" has shape [10, 8] in the file, [2, 8] in the model\n"
                "  \"1.bias\" has shape [10] in the file, [2] in the model");
  const auto report = load_pretrained(*model, path, {.classifier = "1", .first_convolution = "0"});
  EXPECT_EQ(report.notes.size(), 2u);
  const auto convolution = model[0]->as<torch::nn::Conv2d>()->weight,
             original = trained[0]->as<torch::nn::Conv2d>()->weight;
  EXPECT_TRUE(at::allclose(convolution.narrow(1, 0, 3), original * 0.5));
  EXPECT_TRUE(at::allclose(convolution.narrow(1, 3, 3), original * 0.5));
}

TEST_F(PretrainedTest, LayersThatAreNotThereMessages) {
  ImageClassifier model;
  EXPECT_EQ(load_error(*model, "none", {.classifier = "clasifier"}),
            "[cohort] load_pretrained: option classifier: the model has no layer \"clasifier\" (did you mean "
            "\"classifier\"?)");
  EXPECT_EQ(load_error(*model, "none", {.first_convolution = "features.1"}),
            "[cohort] load_pretrained: option first_convolution: the model has no layer \"features.1\" of type Linear "
            "or Conv2d");
}

TEST_F(PretrainedTest, NamesThatDifferMessageAndNothingIsChanged) {
  ToyModel trained, model, before;
  const StateDict good = checkpoint::state_dict(*trained);
  load_pretrained(*before, save(*model));
  StateDict state = without(good, "net2.weight");
  state.insert("net2.wieght", good["net2.weight"]);
  const std::string path = save(state);
  EXPECT_EQ(load_error(*model, path), "[cohort] load_pretrained: \"" + path +
                                          "\" does not fit the model:\n"
                                          "  the file does not have 1: \"net2.weight\"\n"
                                          "  the model does not have 1: \"net2.wieght\"\n"
                                          "  hint: the file's \"net2.wieght\" may be the model's \"net2.weight\"\n"
                                          "  hint: set strict = false to allow different names");
  EXPECT_TRUE(has_same_values(*model, *before));
}

TEST_F(PretrainedTest, OthersModelsMessageIsShort) {
  const std::string path = save(*make_narrow(10));
  VisionTransformer model(
      VisionTransformerOptions{.num_classes = 10, .image_size = 16, .embed_dim = 8, .depth = 1, .num_heads = 2});
  EXPECT_EQ(load_error(*model, path),
            "[cohort] load_pretrained: \"" + path +
                "\" does not fit the model:\n"
                "  the file does not have 18: \"cls_token\", \"pos_embed\", \"patch_embed.proj.weight\", "
                "\"patch_embed.proj.bias\", "
                "\"blocks.0.norm1.weight\" and 13 more\n"
                "  the model does not have 122: \"layer1.0.conv1.weight\", \"layer1.0.conv2.weight\", "
                "\"layer1.1.conv1.weight\", \"layer1.1.conv2.weight\", \"layer2.0.conv1.weight\" and 117 more\n"
                "  hint: set strict = false to allow different names");
}

TEST_F(PretrainedTest, NotStrictTakesWhatThereIs) {
  torch::manual_seed(3);
  ToyModel trained;
  StateDict state = without(checkpoint::state_dict(*trained), "net2.weight");
  state.insert("more", at::ones({2}));
  const std::string path = save(state);
  const LoadPretrainedOptions options{.strict = false};
  torch::manual_seed(4);
  auto model = load_pretrained_model([] { return ToyModel(); }, path, options);
  torch::manual_seed(4);
  ToyModel begun;
  EXPECT_TRUE(at::equal(model->net2->weight, begun->net2->weight));
  EXPECT_TRUE(at::equal(model->net1->weight, trained->net1->weight));
  EXPECT_EQ(load_pretrained(*model, path, options).text(),
            "3 tensors of \"" + path +
                "\"\n  the file does not have 1: \"net2.weight\"\n  the model does not have 1: \"more\"");
}

TEST_F(PretrainedTest, ShowsNamesOfAFileAsPlainShortText) {
  ToyModel model;
  StateDict state = checkpoint::state_dict(*model);
  state.insert("\x1b[2J" + std::string(300, 'x'), at::ones({2}));
  const std::string path = save(state);
  EXPECT_EQ(load_pretrained(*model, path, {.strict = false}).text(),
            "4 tensors of \"" + path + "\"\n  the model does not have 1: \"?[2J" + std::string(196, 'x') + "...\"");
}

TEST_F(PretrainedTest, UsesTheOtherWeightsIfToldSo) {
  ToyModel plain, averaged, model;
  const std::string path = folder_.file("last.pth.tar");
  c10::impl::GenericDict run(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [name, weights] : {std::pair("state_dict", plain), std::pair("state_dict_ema", averaged)}) {
    c10::impl::GenericDict state(c10::StringType::get(), c10::AnyType::get());
    for (const auto& item : checkpoint::state_dict(*weights)) state.insert(item.key(), item.value());
    run.insert(name, state);
  }
  checkpoint::save(run, path);
  EXPECT_EQ(load_pretrained(*model, path).source, "\"" + path + "\", its \"state_dict_ema\",");
  EXPECT_TRUE(has_same_values(*model, *averaged));
  load_pretrained(*model, path, {.use_ema = false});
  EXPECT_TRUE(has_same_values(*model, *plain));
}

// A model whose own names begin as the names of dicts in training checkpoints.
TEST_F(PretrainedTest, AModelMayHaveAModuleNamedModel) {
  struct Wrapping : torch::nn::Module {
    Wrapping() { model = register_module("model", torch::nn::Linear(2, 2)); }
    torch::nn::Linear model{nullptr};
  };
  const auto trained = std::make_shared<Wrapping>(), model = std::make_shared<Wrapping>();
  EXPECT_EQ(load_pretrained(*model, save(*trained)).num_tensors, 2);
  EXPECT_TRUE(has_same_values(*model, *trained));
}

TEST_F(PretrainedTest, FilesThatCannotBeReadMessages) {
  ToyModel model;
  EXPECT_EQ(
      load_error(*model, folder_.file("none.pth")),
      "[cohort] load_pretrained: cannot open \"" + folder_.file("none.pth") + "\": No such file or directory (ENOENT)");
  const std::string empty = save(StateDict(), "empty.safetensors");
  EXPECT_EQ(load_error(*model, empty), "[cohort] load_pretrained: \"" + empty + "\" has no tensors");
}

TEST_F(PretrainedTest, RepeatedElementsAreNotBelievedMessage) {
  StateDict state;
  state.insert("net1.weight", at::zeros({1}).expand({1 << 20}));
  const std::string path = folder_.file("weights.pth");
  checkpoint::save(state, path);
  const auto size = std::to_string(std::filesystem::file_size(path));
  ToyModel model;
  EXPECT_EQ(load_error(*model, path), "[cohort] load_pretrained: \"" + path + "\" has " + size +
                                          " bytes, but its tensors up to \"net1.weight\" are said to have 4194304\n"
                                          "  hint: save tensor.contiguous() of tensors that repeat their elements");
}

TEST_F(PretrainedTest, TheSameNameTwiceMessage) {
  StateDict state = checkpoint::state_dict(*ToyModel());
  state.insert("module.net1.bias", at::ones({10}));
  const std::string path = save(state);
  ToyModel model;
  EXPECT_EQ(load_error(*model, path), "[cohort] load_pretrained: \"" + path +
                                          "\" has two tensors \"net1.bias\", ignoring the prefixes of wrappers");
}

TEST_F(PretrainedTest, GptsOfOtherKindsMessage) {
  const GPTOptions options{.block_size = 8, .vocab_size = 11, .n_layer = 1, .n_head = 2, .n_embd = 8};
  auto without_bias = options;
  without_bias.bias = false;
  const std::string path = save(*GPT(without_bias));
  GPT model(options);
  EXPECT_EQ(load_error(*model, path),
            "[cohort] load_pretrained: \"" + path +
                "\" does not fit the model:\n"
                "  the file does not have 7: \"transformer.h.0.ln_1.bias\", \"transformer.h.0.attn.c_attn.bias\", "
                "\"transformer.h.0.attn.c_proj.bias\", \"transformer.h.0.ln_2.bias\", "
                "\"transformer.h.0.mlp.c_fc.bias\" and 2 more\n"
                "  hint: set strict = false to allow different names");
}

}  // namespace
}  // namespace cohort::models
