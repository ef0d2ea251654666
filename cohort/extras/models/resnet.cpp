#include "cohort/extras/models/resnet.h"

#include <ATen/Functions.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>

#include <utility>

#include "cohort/extras/models/convolution.h"

namespace cohort::models {
namespace {

constexpr std::array<int64_t, 4> kBlocks18 = {2, 2, 2, 2}, kBlocks50 = {3, 4, 6, 3}, kBlocks101 = {3, 4, 23, 3},
                                 kBlocks152 = {3, 8, 36, 3};

void check_resnet_options(const ResNetOptions& options) {
  const std::pair<const char*, int64_t> counts[] = {{"in_channels", options.in_channels},
                                                    {"width", options.width},
                                                    {"cardinality", options.cardinality},
                                                    {"base_width", options.base_width}};
  for (const auto& [name, value] : counts) {
    TORCH_CHECK_VALUE(value >= 1, "[cohort] ResNet: ", name, " must be at least 1, got ", value);
  }
  TORCH_CHECK_VALUE(options.num_classes >= 0, "[cohort] ResNet: num_classes must not be negative, got ",
                    options.num_classes, "\n  hint: use 0 for a model without a classifier");
  for (const int64_t count : options.blocks) {
    TORCH_CHECK_VALUE(count >= 1, "[cohort] ResNet: every stage needs a block or more, got ", count);
  }
  TORCH_CHECK_VALUE(options.drop_rate >= 0.0 && options.drop_rate < 1.0,
                    "[cohort] ResNet: drop_rate must be in [0, 1), got ", options.drop_rate);
  TORCH_CHECK_VALUE(
      !options.is_d_variant || options.width % 2 == 0,
      "[cohort] ResNet: width must be even in a \"d\" variant, whose first convolution has half as many channels, got ",
      options.width);
  const bool is_basic = options.block == ResidualBlockKind::kBasic;
  TORCH_CHECK_VALUE(!is_basic || (options.cardinality == 1 && options.base_width == 64),
                    "[cohort] ResNet: cardinality and base_width are for blocks of kind kBottleneck");
  TORCH_CHECK_VALUE(is_basic || options.width * options.base_width >= 64,
                    "[cohort] ResNet: width * base_width must be at least 64, got ", options.width, " * ",
                    options.base_width);
}

template <typename Block>
torch::nn::Sequential make_stage(ResidualBlockOptions options, int64_t num_blocks) {
  torch::nn::Sequential stage;
  for (int64_t i = 0; i < num_blocks; ++i) {
    stage->push_back(Block(options));
    options.in_channels = options.planes * Block::ContainedType::kExpansion;
    options.stride = 1;
  }
  return stage;
}

torch::nn::Sequential make_deep_stem(const ResNetOptions& options) {
  const int64_t width = options.width / 2;
  const auto relu = [] { return torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)); };
  return torch::nn::Sequential(make_convolution(options.in_channels, width, 3, options.is_small_input ? 1 : 2),
                               BatchNorm2d(width), relu(), make_convolution(width, width, 3), BatchNorm2d(width),
                               relu(), make_convolution(width, options.width, 3));
}

void init_residual_net(torch::nn::Module& net, bool zero_init_last) {
  const auto modules = net.modules(/*include_self=*/false);
  for (const auto& module : modules) {
    if (auto* const convolution = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(convolution->weight, 0.0, torch::kFanOut, torch::kReLU);
    }
  }
  if (!zero_init_last) return;
  for (const auto& module : modules) {
    if (auto* const block = module->as<BasicBlock>()) block->zero_init_last();
    if (auto* const block = module->as<Bottleneck>()) block->zero_init_last();
  }
}

ResNet make_resnet(ResNetOptions options, ResidualBlockKind block, const std::array<int64_t, 4>& blocks) {
  options.block = block;
  options.blocks = blocks;
  return ResNet(options);
}

ResNet make_bottlenecks(ResNetOptions options, const std::array<int64_t, 4>& blocks, int64_t cardinality,
                        int64_t base_width) {
  options.cardinality = cardinality;
  options.base_width = base_width;
  return make_resnet(options, ResidualBlockKind::kBottleneck, blocks);
}

ResNet make_d_variant(ResNetOptions options, ResidualBlockKind block, const std::array<int64_t, 4>& blocks) {
  options.is_d_variant = true;
  return make_resnet(options, block, blocks);
}

}  // namespace

ResNetImpl::ResNetImpl(const ResNetOptions& options) : options_(options) {
  check_resnet_options(options_);
  reset();
}

void ResNetImpl::reset() {
  const int64_t width = options_.width;
  if (options_.is_d_variant) {
    deep_conv1 = register_module("conv1", make_deep_stem(options_));
  } else {
    const int64_t kernel = options_.is_small_input ? 3 : 7, stride = options_.is_small_input ? 1 : 2;
    conv1 = register_module("conv1", make_convolution(options_.in_channels, width, kernel, stride));
  }
  bn1 = register_module("bn1", BatchNorm2d(width));
  const bool is_basic = options_.block == ResidualBlockKind::kBasic;
  ResidualBlockOptions block{.in_channels = width,
                             .planes = width,
                             .cardinality = options_.cardinality,
                             .base_width = options_.base_width,
                             .has_average_downsample = options_.is_d_variant};
  for (size_t i = 0; i < layers.size(); ++i) {
    auto stage = is_basic ? make_stage<BasicBlock>(block, options_.blocks[i])
                          : make_stage<Bottleneck>(block, options_.blocks[i]);
    layers[i] = register_module("layer" + std::to_string(i + 1), std::move(stage));
    block.in_channels = block.planes * (is_basic ? BasicBlockImpl::kExpansion : BottleneckImpl::kExpansion);
    block.planes *= 2;
    block.stride = 2;
  }
  fc = nullptr;
  if (options_.num_classes > 0) {
    fc = register_module("fc", torch::nn::Linear(num_features(), options_.num_classes));
  }
  init_residual_net(*this, options_.zero_init_last.value_or(options_.is_d_variant));
}

at::Tensor ResNetImpl::forward(const at::Tensor& images) { return forward_head(forward_features(images)); }

at::Tensor ResNetImpl::forward_features(const at::Tensor& images) {
  TORCH_CHECK_VALUE(images.dim() == 4 && images.size(1) == options_.in_channels,
                    "[cohort] ResNet: forward needs images [batch, ", options_.in_channels, ", height, width], got ",
                    images.sizes());
  at::Tensor x = bn1(conv1 ? conv1(images) : deep_conv1->forward(images)).relu_();
  if (!options_.is_small_input) x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  for (auto& layer : layers) x = layer->forward(x);
  return x;
}

at::Tensor ResNetImpl::forward_head(const at::Tensor& features) {
  at::Tensor x = at::adaptive_avg_pool2d(features, {1, 1}).flatten(1);
  if (options_.drop_rate > 0.0) x = at::dropout(x, options_.drop_rate, is_training());
  return fc ? fc(x) : x;
}

void ResNetImpl::reset_classifier(int64_t num_classes) {
  TORCH_CHECK_VALUE(num_classes >= 0, "[cohort] ResNet: num_classes must not be negative, got ", num_classes);
  if (fc) unregister_module("fc");
  fc = nullptr;
  options_.num_classes = num_classes;
  if (num_classes == 0) return;
  fc = torch::nn::Linear(num_features(), num_classes);
  fc->to(bn1->weight.device(), bn1->weight.scalar_type());
  fc->train(is_training());
  register_module("fc", fc);
}

int64_t ResNetImpl::num_features() const {
  const bool is_basic = options_.block == ResidualBlockKind::kBasic;
  return 8 * options_.width * (is_basic ? BasicBlockImpl::kExpansion : BottleneckImpl::kExpansion);
}

void ResNetImpl::init_classifier() {
  if (fc) fc->reset_parameters();
}

ResNet resnet18(ResNetOptions options) { return make_resnet(options, ResidualBlockKind::kBasic, kBlocks18); }
ResNet resnet34(ResNetOptions options) { return make_resnet(options, ResidualBlockKind::kBasic, kBlocks50); }
ResNet resnet50(ResNetOptions options) { return make_resnet(options, ResidualBlockKind::kBottleneck, kBlocks50); }
ResNet resnet101(ResNetOptions options) { return make_resnet(options, ResidualBlockKind::kBottleneck, kBlocks101); }
ResNet resnet152(ResNetOptions options) { return make_resnet(options, ResidualBlockKind::kBottleneck, kBlocks152); }

ResNet resnet18d(ResNetOptions options) { return make_d_variant(options, ResidualBlockKind::kBasic, kBlocks18); }
ResNet resnet34d(ResNetOptions options) { return make_d_variant(options, ResidualBlockKind::kBasic, kBlocks50); }
ResNet resnet50d(ResNetOptions options) { return make_d_variant(options, ResidualBlockKind::kBottleneck, kBlocks50); }
ResNet resnet101d(ResNetOptions options) { return make_d_variant(options, ResidualBlockKind::kBottleneck, kBlocks101); }

ResNet wide_resnet50_2(ResNetOptions options) { return make_bottlenecks(options, kBlocks50, 1, 128); }
ResNet wide_resnet101_2(ResNetOptions options) { return make_bottlenecks(options, kBlocks101, 1, 128); }

ResNet resnext50_32x4d(ResNetOptions options) { return make_bottlenecks(options, kBlocks50, 32, 4); }
ResNet resnext101_32x8d(ResNetOptions options) { return make_bottlenecks(options, kBlocks101, 32, 8); }
ResNet resnext101_64x4d(ResNetOptions options) { return make_bottlenecks(options, kBlocks101, 64, 4); }

}  // namespace cohort::models
