/// Vision transformers with a class token. Parameter names, shapes and initial values are timm's, so that its files load
/// (pretrained.h), and the same seed gives the same weights:
/// ```text
/// cls_token, pos_embed, patch_embed.proj.weight, blocks.0.norm1.weight, blocks.0.attn.qkv.weight, blocks.0.attn.proj.weight,
/// blocks.0.norm2.weight, blocks.0.mlp.fc1.weight, blocks.0.mlp.fc2.weight, norm.weight, head.weight
/// ```
///
///     auto model = cohort::models::vit_small({.num_classes = 10, .image_size = 224});
///     at::Tensor scores = model(images);                                               // [batch, 3, 224, 224]
///
/// Thread-safety: as any torch::nn module.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/export.h"
#include "cohort/models/pretrainable.h"

namespace cohort::models {

struct VisionTransformerOptions {
  /// 0 means no classifier: the model returns features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Height and width of images in pixels, a multiple of patch_size. Files for another size fit: their position embedding is
  /// interpolated.
  int64_t image_size = 224;
  int64_t patch_size = 16;
  /// The width, a multiple of num_heads.
  int64_t embed_dim = 384;
  /// The number of blocks.
  int64_t depth = 12;
  int64_t num_heads = 6;
  /// Dropout before the classifier.
  double drop_rate = 0.0;
};

class COHORT_API PatchEmbedImpl : public torch::nn::Cloneable<PatchEmbedImpl> {
 public:
  explicit PatchEmbedImpl(const VisionTransformerOptions& options);
  void reset() override;
  /// Returns [batch, patches, embed_dim].
  at::Tensor forward(const at::Tensor& images);

  torch::nn::Conv2d proj{nullptr};

 private:
  VisionTransformerOptions options_;
};
TORCH_MODULE(PatchEmbed);

class COHORT_API ViTAttentionImpl : public torch::nn::Cloneable<ViTAttentionImpl> {
 public:
  explicit ViTAttentionImpl(const VisionTransformerOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear qkv{nullptr}, proj{nullptr};

 private:
  VisionTransformerOptions options_;
};
TORCH_MODULE(ViTAttention);

class COHORT_API ViTMlpImpl : public torch::nn::Cloneable<ViTMlpImpl> {
 public:
  explicit ViTMlpImpl(const VisionTransformerOptions& options);
  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear fc1{nullptr}, fc2{nullptr};

 private:
  VisionTransformerOptions options_;
};
TORCH_MODULE(ViTMlp);

/// Computes x + attn(norm1(x)), then x + mlp(norm2(x)).
class COHORT_API ViTBlockImpl : public torch::nn::Cloneable<ViTBlockImpl> {
 public:
  explicit ViTBlockImpl(const VisionTransformerOptions& options);
  void reset() override;
  at::Tensor forward(at::Tensor x);

  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  ViTAttention attn{nullptr};
  ViTMlp mlp{nullptr};

 private:
  VisionTransformerOptions options_;
};
TORCH_MODULE(ViTBlock);

class COHORT_API VisionTransformerImpl : public torch::nn::Cloneable<VisionTransformerImpl>, public Pretrainable {
 public:
  /// Throws c10::ValueError for options that cannot work; the message names the option.
  explicit VisionTransformerImpl(const VisionTransformerOptions& options = {});
  void reset() override;

  /// `images` [batch, in_channels, image_size, image_size] -> scores [batch, num_classes], or features [batch, embed_dim].
  /// Throws c10::ValueError for images of another size.
  at::Tensor forward(const at::Tensor& images);
  /// Returns [batch, 1 + patches, embed_dim]; the first one is the class token's.
  at::Tensor forward_features(const at::Tensor& images);
  /// Computes the rest of forward.
  at::Tensor forward_head(const at::Tensor& features);

  /// Makes a newly initialized classifier; 0 removes it. Make optimizers and wrappers afterwards.
  void reset_classifier(int64_t num_classes);
  const VisionTransformerOptions& options() const { return options_; }

  std::string classifier_name() const override { return "head"; }
  void init_classifier() override;
  std::string first_convolution_name() const override { return "patch_embed.proj"; }
  checkpoint::StateDict adapted_weights(checkpoint::StateDict weights, std::vector<std::string>* notes) const override;

  at::Tensor cls_token, pos_embed;
  PatchEmbed patch_embed{nullptr};
  /// Made of ViTBlock.
  torch::nn::Sequential blocks{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  /// Null without classes.
  torch::nn::Linear head{nullptr};

 private:
  VisionTransformerOptions options_;
};
TORCH_MODULE(VisionTransformer);

/// Their names set embed_dim, depth and num_heads; patch_size is 16 by default: ViT-Ti/16, ViT-S/16, ViT-B/16.
COHORT_API VisionTransformer vit_tiny(VisionTransformerOptions options = {});
COHORT_API VisionTransformer vit_small(VisionTransformerOptions options = {});
COHORT_API VisionTransformer vit_base(VisionTransformerOptions options = {});

}  // namespace cohort::models
