#include "cohort/extras/models/vision_transformer.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/init.h>

#include <cmath>
#include <utility>

#include "cohort/extras/models/position_embedding.h"

namespace cohort::models {
namespace {

constexpr double kVitStddev = 0.02, kClassTokenStddev = 1e-6, kVitEpsilon = 1e-6;
constexpr int64_t kMlpRatio = 4;

torch::nn::LayerNorm make_vit_norm(int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(kVitEpsilon));
}

// Normal with standard deviation kVitStddev; the bounds, -2 and 2 as in timm, are far outside.
void init_truncated_normal(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const double bound = std::erf(2.0 / kVitStddev / std::sqrt(2.0));
  tensor.uniform_(-bound, bound).erfinv_().mul_(kVitStddev * std::sqrt(2.0)).clamp_(-2.0, 2.0);
}

void init_vit_linear(torch::nn::LinearImpl& linear) {
  init_truncated_normal(linear.weight);
  torch::nn::init::zeros_(linear.bias);
}

void check_vit_options(const VisionTransformerOptions& options) {
  const std::pair<const char*, int64_t> sizes[] = {
      {"in_channels", options.in_channels}, {"image_size", options.image_size}, {"patch_size", options.patch_size},
      {"embed_dim", options.embed_dim},     {"depth", options.depth},           {"num_heads", options.num_heads}};
  for (const auto& [name, value] : sizes) {
    TORCH_CHECK_VALUE(value >= 1, "[cohort] VisionTransformer: ", name, " must be at least 1, got ", value);
  }
  TORCH_CHECK_VALUE(options.num_classes >= 0, "[cohort] VisionTransformer: num_classes must not be negative, got ",
                    options.num_classes, "\n  hint: use 0 for a model without a classifier");
  TORCH_CHECK_VALUE(options.image_size % options.patch_size == 0,
                    "[cohort] VisionTransformer: image_size must be a multiple of patch_size, got image_size ",
                    options.image_size, " and patch_size ", options.patch_size);
  TORCH_CHECK_VALUE(options.embed_dim % options.num_heads == 0,
                    "[cohort] VisionTransformer: embed_dim must be a multiple of num_heads, got embed_dim ",
                    options.embed_dim, " and num_heads ", options.num_heads);
  TORCH_CHECK_VALUE(options.drop_rate >= 0.0 && options.drop_rate < 1.0,
                    "[cohort] VisionTransformer: drop_rate must be in [0, 1), got ", options.drop_rate);
}

VisionTransformer make_vit(VisionTransformerOptions options, int64_t embed_dim, int64_t num_heads) {
  options.embed_dim = embed_dim;
  options.depth = 12;
  options.num_heads = num_heads;
  return VisionTransformer(options);
}

}  // namespace

PatchEmbedImpl::PatchEmbedImpl(const VisionTransformerOptions& options) : options_(options) { reset(); }

void PatchEmbedImpl::reset() {
  proj = register_module(
      "proj", torch::nn::Conv2d(torch::nn::Conv2dOptions(options_.in_channels, options_.embed_dim, options_.patch_size)
                                    .stride(options_.patch_size)));
}

at::Tensor PatchEmbedImpl::forward(const at::Tensor& images) { return proj(images).flatten(2).transpose(1, 2); }

ViTAttentionImpl::ViTAttentionImpl(const VisionTransformerOptions& options) : options_(options) { reset(); }

void ViTAttentionImpl::reset() {
  qkv = register_module("qkv", torch::nn::Linear(options_.embed_dim, 3 * options_.embed_dim));
  proj = register_module("proj", torch::nn::Linear(options_.embed_dim, options_.embed_dim));
}

at::Tensor ViTAttentionImpl::forward(const at::Tensor& x) {
  const int64_t batch = x.size(0), tokens = x.size(1), heads = options_.num_heads, width = options_.embed_dim;
  const std::vector<at::Tensor> parts =
      qkv(x).reshape({batch, tokens, 3, heads, width / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
  return proj(y.transpose(1, 2).reshape({batch, tokens, width}));
}

ViTMlpImpl::ViTMlpImpl(const VisionTransformerOptions& options) : options_(options) { reset(); }

void ViTMlpImpl::reset() {
  fc1 = register_module("fc1", torch::nn::Linear(options_.embed_dim, kMlpRatio * options_.embed_dim));
  fc2 = register_module("fc2", torch::nn::Linear(kMlpRatio * options_.embed_dim, options_.embed_dim));
}

at::Tensor ViTMlpImpl::forward(const at::Tensor& x) { return fc2(at::gelu(fc1(x))); }

ViTBlockImpl::ViTBlockImpl(const VisionTransformerOptions& options) : options_(options) { reset(); }

void ViTBlockImpl::reset() {
  norm1 = register_module("norm1", make_vit_norm(options_.embed_dim));
  attn = register_module("attn", ViTAttention(options_));
  norm2 = register_module("norm2", make_vit_norm(options_.embed_dim));
  mlp = register_module("mlp", ViTMlp(options_));
}

at::Tensor ViTBlockImpl::forward(at::Tensor x) {
  x = x + attn(norm1(x));
  return x + mlp(norm2(x));
}

VisionTransformerImpl::VisionTransformerImpl(const VisionTransformerOptions& options) : options_(options) {
  check_vit_options(options_);
  reset();
}

void VisionTransformerImpl::reset() {
  const int64_t width = options_.embed_dim, side = options_.image_size / options_.patch_size;
  patch_embed = register_module("patch_embed", PatchEmbed(options_));
  cls_token = register_parameter("cls_token", at::empty({1, 1, width}));
  pos_embed = register_parameter("pos_embed", at::empty({1, 1 + side * side, width}));
  blocks = register_module("blocks", torch::nn::Sequential());
  for (int64_t i = 0; i < options_.depth; ++i) blocks->push_back(ViTBlock(options_));
  norm = register_module("norm", make_vit_norm(width));
  head = nullptr;
  if (options_.num_classes > 0) head = register_module("head", torch::nn::Linear(width, options_.num_classes));

  // In timm's order.
  init_truncated_normal(pos_embed);
  torch::nn::init::normal_(cls_token, 0.0, kClassTokenStddev);
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* const linear = module->as<torch::nn::Linear>()) init_vit_linear(*linear);
  }
}

at::Tensor VisionTransformerImpl::forward(const at::Tensor& images) { return forward_head(forward_features(images)); }

at::Tensor VisionTransformerImpl::forward_features(const at::Tensor& images) {
  const int64_t size = options_.image_size;
  TORCH_CHECK_VALUE(
      images.dim() == 4 && images.size(1) == options_.in_channels && images.size(2) == size && images.size(3) == size,
      "[cohort] VisionTransformer: forward needs images [batch, ", options_.in_channels, ", ", size, ", ", size,
      "], got ", images.sizes(), "\n  hint: set image_size in the model's options");
  const at::Tensor patches = patch_embed(images);
  const at::Tensor x = at::cat({cls_token.expand({images.size(0), -1, -1}), patches}, 1) + pos_embed;
  return norm(blocks->forward(x));
}

at::Tensor VisionTransformerImpl::forward_head(const at::Tensor& features) {
  at::Tensor x = features.select(1, 0);
  if (options_.drop_rate > 0.0) x = at::dropout(x, options_.drop_rate, is_training());
  return head ? head(x) : x;
}

void VisionTransformerImpl::reset_classifier(int64_t num_classes) {
  TORCH_CHECK_VALUE(num_classes >= 0, "[cohort] VisionTransformer: num_classes must not be negative, got ",
                    num_classes);
  if (head) unregister_module("head");
  head = nullptr;
  options_.num_classes = num_classes;
  if (num_classes == 0) return;
  head = torch::nn::Linear(options_.embed_dim, num_classes);
  init_classifier();
  head->to(cls_token.device(), cls_token.scalar_type());
  head->train(is_training());
  register_module("head", head);
}

void VisionTransformerImpl::init_classifier() {
  if (head) init_vit_linear(*head);
}

checkpoint::StateDict VisionTransformerImpl::adapted_weights(checkpoint::StateDict weights,
                                                             std::vector<std::string>* notes) const {
  const at::Tensor* positions = weights.find("pos_embed");
  if (positions == nullptr || positions->sizes() == pos_embed.sizes()) return weights;
  // For another width nothing fits, but the interpolation could become as large as the file claims.
  const bool fits = positions->dim() == 3 && positions->size(2) == options_.embed_dim && positions->is_floating_point();
  if (!fits) return weights;
  const int64_t side = options_.image_size / options_.patch_size;
  const at::Tensor resized = interpolated_positions(*positions, side);
  if (!resized.defined()) return weights;
  const int64_t old_side = side_of(positions->size(1) - 1);
  notes->push_back(
      c10::str("\"pos_embed\": interpolated from ", old_side, "x", old_side, " patches to ", side, "x", side));
  weights["pos_embed"] = resized;
  return weights;
}

VisionTransformer vit_tiny(VisionTransformerOptions options) { return make_vit(options, 192, 3); }
VisionTransformer vit_small(VisionTransformerOptions options) { return make_vit(options, 384, 6); }
VisionTransformer vit_base(VisionTransformerOptions options) { return make_vit(options, 768, 12); }

}  // namespace cohort::models
