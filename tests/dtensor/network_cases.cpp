#include <ATen/ATen.h>

#include "tests/dtensor/op_cases.h"

namespace cohort::test {
namespace {

using Many = at::Tensor (*)(const Tensors&);

OpCase one_result(const std::string& name, Tensors inputs, Many run) {
  return {name, std::move(inputs), [run](const Tensors& in) { return Tensors{run(in)}; }};
}

at::Tensor logits() { return numbers({5, 4}); }
at::Tensor classes() { return at::tensor({1, 3, -100, 0, 2}, at::kLong); }
at::Tensor no_classes(at::IntArrayRef sizes) { return at::full(sizes, -100, at::kLong); }

}  // namespace

std::vector<OpCase> matrix_cases() {
  return {
      one_result("mm", {numbers({5, 3}), numbers({3, 7}, 1)}, [](const Tensors& in) { return in[0].mm(in[1]); }),
      one_result("addmm", {numbers({7}), numbers({5, 3}, 1), numbers({3, 7}, 2)},
                 [](const Tensors& in) { return at::addmm(in[0], in[1], in[2]); }),
      one_result("bmm", {numbers({3, 5, 2}), numbers({3, 2, 4}, 1)},
                 [](const Tensors& in) { return in[0].bmm(in[1]); }),
      one_result("baddbmm", {numbers({3, 5, 4}), numbers({3, 5, 2}, 1), numbers({3, 2, 4}, 2)},
                 [](const Tensors& in) { return at::baddbmm(in[0], in[1], in[2], 0.5, 2); }),
      one_result("mv", {numbers({5, 3}), numbers({3}, 1)}, [](const Tensors& in) { return in[0].mv(in[1]); }),
      one_result("dot", {numbers({5}), numbers({5}, 1)}, [](const Tensors& in) { return in[0].dot(in[1]); }),
      one_result("linear", {numbers({4, 3}), numbers({5, 3}, 1), numbers({5}, 2)},
                 [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); }),
      one_result("linear of three dimensions", {numbers({2, 4, 3}), numbers({5, 3}, 1), numbers({5}, 2)},
                 [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); }),
      one_result("matmul", {numbers({2, 4, 3}), numbers({2, 3, 5}, 1)},
                 [](const Tensors& in) { return in[0].matmul(in[1]); }),
      one_result(
          "attention", {numbers({2, 4, 3, 2}), numbers({2, 4, 3, 2}, 1), numbers({2, 4, 3, 2}, 2)},
          [](const Tensors& in) { return at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0.0, true); }),
      one_result("attention of interleaved heads", {numbers({2, 4, 3, 2, 3})},
                 [](const Tensors& in) {
                   const auto qkv = in[0].unbind(-1);
                   return at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, true);
                 }),
      one_result("attention of every other number", {numbers({2, 4, 3, 4}), numbers({2, 4, 3, 2}, 1)},
                 [](const Tensors& in) {
                   const auto every_other = in[0].slice(-1, 0, 4, 2);
                   return at::scaled_dot_product_attention(every_other, in[1], in[1]);
                 }),
  };
}

std::vector<OpCase> network_cases() {
  return {
      one_result("layer_norm", {numbers({2, 5, 3}), numbers({3}, 1), numbers({3}, 2)},
                 [](const Tensors& in) { return at::layer_norm(in[0], {3}, in[1], in[2]); }),
      one_result("layer_norm without weight", {numbers({5, 3})},
                 [](const Tensors& in) { return at::layer_norm(in[0], {3}); }),
      one_result("rms_norm", {numbers({2, 5, 3}), numbers({3}, 1)},
                 [](const Tensors& in) { return at::rms_norm(in[0], {3}, in[1], 1e-5); }),
      one_result("group_norm", {numbers({3, 4, 2}), numbers({4}, 1), numbers({4}, 2)},
                 [](const Tensors& in) { return at::group_norm(in[0], 2, in[1], in[2]); }),
      one_result("batch_norm", {numbers({5, 3, 2}), numbers({3}, 1), numbers({3}, 2)},
                 [](const Tensors& in) { return at::batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false); }),
      one_result("conv2d", {numbers({3, 4, 5, 5}), numbers({6, 4, 3, 3}, 1), numbers({6}, 2)},
                 [](const Tensors& in) { return at::conv2d(in[0], in[1], in[2], 2, 1); }),
      one_result("conv1d in groups", {numbers({3, 4, 5}), numbers({4, 2, 3}, 1)},
                 [](const Tensors& in) { return at::conv1d(in[0], in[1], {}, 1, 1, 1, 2); }),
      one_result("max_pool2d", {numbers({3, 4, 6, 6})},
                 [](const Tensors& in) {
                   return at::max_pool2d(in[0], {2, 2});
                 }),
      one_result("avg_pool2d", {numbers({3, 4, 6, 6})},
                 [](const Tensors& in) {
                   return at::avg_pool2d(in[0], {2, 2});
                 }),
      one_result("adaptive_avg_pool2d", {numbers({3, 4, 6, 6})},
                 [](const Tensors& in) {
                   return at::adaptive_avg_pool2d(in[0], {3, 3});
                 }),
      one_result("pooled to one", {numbers({3, 4, 6, 6})},
                 [](const Tensors& in) {
                   return at::adaptive_avg_pool2d(in[0], {1, 1});
                 }),
      one_result("embedding", {numbers({7, 3}), indices({2, 5}, 7)},
                 [](const Tensors& in) { return at::embedding(in[0], in[1]); }),
      one_result("gather", {numbers({5, 4}), indices({5, 2}, 4)},
                 [](const Tensors& in) { return in[0].gather(1, in[1]); }),
  };
}

std::vector<OpCase> loss_cases() {
  return {
      one_result("nll mean", {logits(), classes()},
                 [](const Tensors& in) { return at::nll_loss(in[0].log_softmax(1), in[1]); }),
      one_result("nll sum", {logits(), classes()},
                 [](const Tensors& in) { return at::nll_loss(in[0].log_softmax(1), in[1], {}, at::Reduction::Sum); }),
      one_result("nll none", {logits(), classes()},
                 [](const Tensors& in) { return at::nll_loss(in[0].log_softmax(1), in[1], {}, at::Reduction::None); }),
      one_result("nll weighted", {logits(), classes(), positive({4}, 3)},
                 [](const Tensors& in) { return at::nll_loss(in[0].log_softmax(1), in[1], in[2].detach()); }),
      one_result("cross_entropy", {logits(), classes()},
                 [](const Tensors& in) { return at::cross_entropy_loss(in[0], in[1]); }),
      one_result(
          "cross_entropy smoothed", {logits(), classes()},
          [](const Tensors& in) { return at::cross_entropy_loss(in[0], in[1], {}, at::Reduction::Mean, -100, 0.1); }),
      one_result("cross_entropy without a class", {logits(), at::tensor({1, 3, 0, 1, 2}, at::kLong)},
                 [](const Tensors& in) { return at::cross_entropy_loss(in[0], in[1], {}, at::Reduction::Mean, 1); }),
      one_result("cross_entropy of images", {numbers({3, 4, 5}), indices({3, 5}, 4)},
                 [](const Tensors& in) { return at::cross_entropy_loss(in[0], in[1]); }),
      // The loss is no number, the gradients are zeros.
      one_result("cross_entropy of ignored targets", {logits(), no_classes({5})},
                 [](const Tensors& in) { return at::cross_entropy_loss(in[0], in[1]); }),
      one_result("cross_entropy of ignored targets with weights", {logits(), no_classes({5}), positive({4}, 3)},
                 [](const Tensors& in) { return at::cross_entropy_loss(in[0], in[1], in[2].detach()); }),
      one_result(
          "cross_entropy of ignored targets smoothed", {logits(), no_classes({5})},
          [](const Tensors& in) { return at::cross_entropy_loss(in[0], in[1], {}, at::Reduction::Mean, -100, 0.1); }),
      one_result("cross_entropy of images of ignored targets", {numbers({3, 4, 5}), no_classes({3, 5})},
                 [](const Tensors& in) { return at::cross_entropy_loss(in[0], in[1]); }),
      one_result("mse", {numbers({5, 3}), numbers({5, 3}, 1)},
                 [](const Tensors& in) { return at::mse_loss(in[0], in[1]); }),
      one_result("mse sum", {numbers({5, 3}), numbers({5, 3}, 1)},
                 [](const Tensors& in) { return at::mse_loss(in[0], in[1], at::Reduction::Sum); }),
      one_result("mse none", {numbers({5, 3}), numbers({5, 3}, 1)},
                 [](const Tensors& in) { return at::mse_loss(in[0], in[1], at::Reduction::None); }),
      one_result("l1", {numbers({5, 3}), numbers({5, 3}, 1)},
                 [](const Tensors& in) { return at::l1_loss(in[0], in[1]); }),
      one_result("smooth_l1", {numbers({5, 3}), numbers({5, 3}, 1)},
                 [](const Tensors& in) { return at::smooth_l1_loss(in[0], in[1]); }),
      one_result("huber", {numbers({5, 3}), numbers({5, 3}, 1)},
                 [](const Tensors& in) { return at::huber_loss(in[0], in[1]); }),
      one_result("binary_cross_entropy", {numbers({5, 3}), numbers({5, 3}, 1)},
                 [](const Tensors& in) { return at::binary_cross_entropy(in[0].sigmoid(), in[1].detach().sigmoid()); }),
      one_result(
          "binary_cross_entropy_with_logits", {numbers({5, 3}), numbers({5, 3}, 1)},
          [](const Tensors& in) { return at::binary_cross_entropy_with_logits(in[0], in[1].detach().sigmoid()); }),
  };
}

std::vector<OpCase> creation_cases() {
  const auto from = [](const std::string& name, Many run) { return one_result(name, {numbers({5, 3})}, run); };
  return {
      from("zeros_like", [](const Tensors& in) { return at::zeros_like(in[0]); }),
      from("ones_like", [](const Tensors& in) { return at::ones_like(in[0]); }),
      from("full_like", [](const Tensors& in) { return at::full_like(in[0], 3); }),
      from("empty_like", [](const Tensors& in) { return at::empty_like(in[0]).fill_(2); }),
      from("new_zeros",
           [](const Tensors& in) {
             return in[0].new_zeros({5, 3});
           }),
      from("new_ones",
           [](const Tensors& in) {
             return in[0].new_ones({5, 3});
           }),
      from("new_full",
           [](const Tensors& in) {
             return in[0].new_full({2, 7}, 4);
           }),
      from("new_empty",
           [](const Tensors& in) {
             return in[0].new_empty({5, 3}).zero_();
           }),
      from("new_empty_strided",
           [](const Tensors& in) {
             return in[0].new_empty_strided({5, 3}, {1, 5}).fill_(1);
           }),
  };
}

}  // namespace cohort::test
