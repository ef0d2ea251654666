#include "cohort/extras/models/vision_transformer.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>

#include <functional>
#include <memory>
#include <string>

#include "cohort/extras/models/position_embedding.h"

namespace cohort::models {
namespace {

const VisionTransformerOptions kTinyViT{
    .num_classes = 4, .image_size = 16, .patch_size = 4, .embed_dim = 16, .depth = 2, .num_heads = 2};

std::string vit_error(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(VisionTransformer, LearnsABatch) {
  torch::manual_seed(0);
  VisionTransformer model(kTinyViT);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(3e-3));
  const at::Tensor images = at::randn({8, 3, 16, 16}), labels = at::arange(8, at::kLong) % 4;
  double first = 0.0, last = 0.0;
  for (int step = 0; step < 60; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(model(images), labels);
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  EXPECT_LT(last, 0.3 * first);
}

TEST(VisionTransformer, GivesFeaturesWithoutClasses) {
  const at::NoGradGuard no_grad;
  auto options = kTinyViT;
  options.num_classes = 0;
  VisionTransformer model(options);
  const at::Tensor images = at::randn({2, 3, 16, 16});
  EXPECT_EQ(model(images).sizes(), (at::IntArrayRef{2, 16}));
  EXPECT_EQ(model->forward_features(images).sizes(), (at::IntArrayRef{2, 17, 16}));
  model->reset_classifier(7);
  EXPECT_EQ(model(images).sizes(), (at::IntArrayRef{2, 7}));
  EXPECT_TRUE(model->named_parameters().contains("head.bias"));
  model->reset_classifier(0);
  EXPECT_FALSE(model->named_parameters().contains("head.bias"));
}

TEST(VisionTransformer, DropoutActsOnlyInTraining) {
  auto options = kTinyViT;
  options.drop_rate = 0.5;
  VisionTransformer model(options);
  const at::Tensor images = at::randn({2, 3, 16, 16});
  EXPECT_FALSE(at::equal(model(images), model(images)));
  model->eval();
  EXPECT_TRUE(at::equal(model(images), model(images)));
}

TEST(VisionTransformer, CloneHasValuesOfItsOwn) {
  VisionTransformer model(kTinyViT);
  const auto copy = std::dynamic_pointer_cast<VisionTransformerImpl>(model->clone());
  const auto ours = model->named_parameters(), theirs = copy->named_parameters();
  ASSERT_EQ(ours.keys(), theirs.keys());
  for (const auto& item : ours) {
    EXPECT_TRUE(at::equal(item.value(), theirs[item.key()])) << item.key();
    EXPECT_FALSE(item.value().is_alias_of(theirs[item.key()])) << item.key();
  }
  EXPECT_TRUE(copy->cls_token.is_same(theirs["cls_token"]));
}

TEST(VisionTransformer, WrongArgumentsMessages) {
  const auto with = [](auto change) {
    return vit_error([&] {
      auto options = kTinyViT;
      change(options);
      const VisionTransformer model(options);
    });
  };
  EXPECT_EQ(with([](auto& o) { o.depth = 0; }), "[cohort] VisionTransformer: depth must be at least 1, got 0");
  EXPECT_EQ(with([](auto& o) { o.num_classes = -1; }),
            "[cohort] VisionTransformer: num_classes must not be negative, got -1\n  hint: use 0 for a model without a "
            "classifier");
  EXPECT_EQ(
      with([](auto& o) { o.image_size = 18; }),
      "[cohort] VisionTransformer: image_size must be a multiple of patch_size, got image_size 18 and patch_size 4");
  EXPECT_EQ(with([](auto& o) { o.num_heads = 3; }),
            "[cohort] VisionTransformer: embed_dim must be a multiple of num_heads, got embed_dim 16 and num_heads 3");
  EXPECT_EQ(with([](auto& o) { o.drop_rate = 1.0; }), "[cohort] VisionTransformer: drop_rate must be in [0, 1), got 1");
  EXPECT_EQ(vit_error([] {
              VisionTransformer(kTinyViT)->forward(at::zeros({1, 3, 32, 32}));
            }),
            "[cohort] VisionTransformer: forward needs images [batch, 3, 16, 16], got [1, 3, 32, 32]\n"
            "  hint: set image_size in the model's options");
}

// Interpolated they would be as large as their file says, and fit nothing.
TEST(VisionTransformer, LeavesPositionsOfAnotherWidthAlone) {
  VisionTransformer model(kTinyViT);
  for (const at::Tensor& positions : {at::zeros({1, 5, 24}), at::zeros({5, 16}), at::zeros({1, 5, 16}, at::kLong)}) {
    checkpoint::StateDict weights;
    weights.insert("pos_embed", positions);
    std::vector<std::string> notes;
    const auto adapted = model->adapted_weights(std::move(weights), &notes);
    EXPECT_TRUE(adapted["pos_embed"].is_same(positions));
    EXPECT_TRUE(notes.empty());
  }
}

TEST(PositionEmbedding, OtherShapesAreNotInterpolated) {
  EXPECT_FALSE(interpolated_positions(at::zeros({1, 8, 4}), 3).defined());  // 7 patches are no square
  EXPECT_FALSE(interpolated_positions(at::zeros({1, 1, 4}), 3).defined());
  EXPECT_FALSE(interpolated_positions(at::zeros({2, 5, 4}), 3).defined());
  EXPECT_FALSE(interpolated_positions(at::zeros({5, 4}), 3).defined());
  EXPECT_EQ(interpolated_positions(at::zeros({1, 5, 4}, at::kHalf), 3).scalar_type(), at::kHalf);
}

}  // namespace
}  // namespace cohort::models
