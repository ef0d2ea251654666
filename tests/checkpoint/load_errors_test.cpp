// What a user reads who loads the wrong file: the file, the function that was called, what is wrong, and the way out.
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "cohort/checkpoint/checkpointer/training_checkpoint.h"
#include "tests/checkpoint/temporary_folder.h"
#include "tests/data/error_text.h"

namespace cohort::checkpoint {
namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using test::error_text;

constexpr const char* kFreshOptimizerHint =
    "construct the same kind of optimizer over the same parameters as in the run that was saved; to go on with a fresh "
    "one, "
    "give load_checkpoint() nullptr in its place";

class LoadErrors : public testing::Test {
 protected:
  nn::Sequential net{nn::Linear(2, 1)};
  optim::SGD optimizer{net->parameters(), optim::SGDOptions(0.1).momentum(0.9)};
  test::TemporaryFolder folder;
  const std::string path = folder.file("run.safetensors");

  std::string load_text() {
    return error_text<c10::Error>([this] { load_checkpoint(*net, &optimizer, path); });
  }
};

TEST_F(LoadErrors, FileThatIsNotThereMessage) {
  EXPECT_EQ(load_text(),
            "[cohort] load_checkpoint: cannot read \"" + path + "\"\n  caused by: No such file or directory (ENOENT)");
  EXPECT_EQ(error_text<c10::Error>([this] { load_model(*net, path); }),
            "[cohort] load_model: cannot read \"" + path + "\"\n  caused by: No such file or directory (ENOENT)");
}

TEST_F(LoadErrors, FileOfTorchSaveMessage) {
  torch::save(net, path);
  EXPECT_EQ(load_text(), "[cohort] load_checkpoint: cannot read \"" + path +
                             "\"\n  caused by: it is a zip archive, as torch::save and torch.save write\n"
                             "  hint: read it with torch::load");
}

TEST_F(LoadErrors, WeightsAloneMessage) {
  save_file(state_dict(*net), path);
  EXPECT_EQ(load_text(), "[cohort] load_checkpoint: \"" + path +
                             "\" is not a training checkpoint: its metadata has no number \"step\", and it holds no "
                             "optimizer state\n  hint: read weights alone with load_model() or load_file()");
}

TEST_F(LoadErrors, PositionThatIsNoNumberMessage) {
  save_checkpoint(*net, &optimizer, path);
  auto metadata = load_metadata(path);
  metadata["epoch"] = "three";
  save_file(load_file(path), path, metadata);
  EXPECT_EQ(load_text(), "[cohort] load_checkpoint: \"" + path +
                             "\" is not a training checkpoint: its metadata has no number \"epoch\"\n"
                             "  hint: read weights alone with load_model() or load_file()");
}

TEST_F(LoadErrors, NoOptimizerStateMessage) {
  save_checkpoint(*net, nullptr, path);
  const auto before = net->parameters()[0].detach().clone();
  net->parameters()[0].detach().fill_(7);
  EXPECT_EQ(load_text(),
            "[cohort] load_checkpoint: \"" + path +
                "\" holds no optimizer state\n  hint: it was saved without an optimizer; to go on with a fresh "
                "one, give load_checkpoint() nullptr in its place");
  EXPECT_TRUE(net->parameters()[0].eq(7).all().item<bool>()) << "nothing may have been loaded";
  load_checkpoint(*net, nullptr, path);
  EXPECT_TRUE(net->parameters()[0].equal(before));
}

TEST_F(LoadErrors, AnotherModelMessage) {
  save_checkpoint(*nn::Sequential(nn::Linear(3, 1)), nullptr, path);
  EXPECT_EQ(
      error_text<c10::Error>([this] { load_checkpoint(*net, nullptr, path); }),
      "[cohort] load_checkpoint: \"" + path +
          "\" does not fit the model\n  caused by: Error(s) in loading state_dict for Sequential:\n"
          "\tsize mismatch for 0.weight: copying a param with shape torch.Size([1, 3]) from checkpoint, the shape in "
          "current model is torch.Size([1, 2]).\n"
          "  hint: construct the model as in the run that was saved; load_file() gives whatever the file holds, by "
          "name");
}

TEST_F(LoadErrors, AnotherOptimizerMessage) {
  optim::RMSprop other(net->parameters());
  save_checkpoint(*net, &other, path);
  const std::string names[] = {"0.weight", "0.bias"};
  std::string missing, unexpected;
  for (const auto& name : names) {
    for (const auto* key : {"dampening", "nesterov"}) missing += "\"param_groups." + name + "." + key + "\", ";
    for (const auto* key : {"alpha", "eps", "centered"}) unexpected += "\"param_groups." + name + "." + key + "\", ";
  }
  missing.resize(missing.size() - 2), unexpected.resize(unexpected.size() - 2);
  EXPECT_EQ(load_text(), "[cohort] load_checkpoint: \"" + path +
                             "\" does not fit the optimizer\n"
                             "  caused by: load_optimizer_state_dict: the state does not fit the optimizer\n"
                             "\tMissing key(s): " +
                             missing + ".\n\tUnexpected key(s): " + unexpected + ".\n  hint: " + kFreshOptimizerHint);
}

TEST_F(LoadErrors, GroupsWithOtherOptionsKeepTheTypeMessage) {
  optim::SGD apart(
      {optim::OptimizerParamGroup({net->parameters()[0]}), optim::OptimizerParamGroup({net->parameters()[1]})},
      optim::SGDOptions(0.1));
  apart.param_groups()[1].options().set_lr(0.5);
  save_checkpoint(*net, &apart, path);
  EXPECT_EQ(error_text<c10::ValueError>([this] { load_checkpoint(*net, &optimizer, path); }),
            "[cohort] load_checkpoint: \"" + path +
                "\" does not fit the optimizer\n  caused by: group 0 of the optimizer holds \"0.bias\" and "
                "\"0.weight\", which "
                "have different options in the checkpoint\n"
                "  hint: construct the optimizer with the parameter groups of the saved run");
}

TEST_F(LoadErrors, OptimizerThatCannotBeLoadedMessage) {
  save_checkpoint(*net, &optimizer, path);
  optim::LBFGS other(net->parameters(), optim::LBFGSOptions());
  EXPECT_EQ(error_text<c10::NotImplementedError>([&] { load_checkpoint(*net, &other, path); }),
            "[cohort] load_checkpoint: \"" + path +
                "\" does not fit the optimizer\n  caused by: the state of LBFGS does not belong to single parameters, "
                "so it cannot be saved by their names\n"
                "  hint: save optimizer_state_dict(optimizer), which is Python's layout");
}

TEST_F(LoadErrors, RandomNumbersOfSomethingElseMessage) {
  save_checkpoint(*net, nullptr, path);
  auto tensors = load_file(path);
  tensors["rng.cpu"] = torch::zeros({3}, at::kByte);
  save_file(tensors, path, load_metadata(path));
  const auto text = error_text<c10::Error>([this] { load_checkpoint(*net, nullptr, path); });
  const std::string head =
      "[cohort] load_checkpoint: \"" + path + "\" does not fit LibTorch's CPU generator\n  caused by: ";
  EXPECT_TRUE(text.starts_with(head)) << text;
  EXPECT_TRUE(text.ends_with("\n  hint: {.restore_rng = false} leaves the random numbers of this process as they are"))
      << text;
  load_checkpoint(*net, nullptr, path, {.restore_rng = false});
}

TEST_F(LoadErrors, CheckpointForAModelMessage) {
  save_checkpoint(*net, nullptr, path);
  EXPECT_EQ(error_text<c10::Error>([this] { load_model(*net, path); }),
            "[cohort] load_model: \"" + path +
                "\" does not fit the model\n  caused by: Error(s) in loading state_dict for Sequential:\n"
                "\tMissing key(s) in state_dict: \"0.weight\", \"0.bias\". \n"
                "\tUnexpected key(s) in state_dict: \"model.0.weight\", \"model.0.bias\", \"rng.cpu\". \n"
                "  hint: this is a training checkpoint, which load_checkpoint() reads");
}

TEST_F(LoadErrors, OtherWeightsForAModelMessage) {
  save_model(*nn::Sequential(nn::Linear(nn::LinearOptions(2, 1).bias(false))), path);
  EXPECT_EQ(error_text<c10::Error>([this] { load_model(*net, path); }),
            "[cohort] load_model: \"" + path +
                "\" does not fit the model\n  caused by: Error(s) in loading state_dict for Sequential:\n"
                "\tMissing key(s) in state_dict: \"0.bias\". \n"
                "  hint: construct the model as it was when the file was written, or take what fits by name with "
                "{.strict = false}");
  EXPECT_EQ(load_model(*net, path, {.strict = false}).missing_keys, std::vector<std::string>{"0.bias"});
}

TEST_F(LoadErrors, SavingNamesItsFunctionTooMessage) {
  net->register_buffer("wide", torch::zeros({1}, at::kComplexDouble));
  EXPECT_EQ(
      error_text<c10::ValueError>([this] { save_checkpoint(*net, nullptr, path); }),
      "[cohort] save_checkpoint: tensor \"model.wide\" is ComplexDouble, which the safetensors format does not know");
  EXPECT_EQ(error_text<c10::ValueError>([this] { save_model(*net, path); }),
            "[cohort] save_model: tensor \"wide\" is ComplexDouble, which the safetensors format does not know");
}

}  // namespace
}  // namespace cohort::checkpoint
