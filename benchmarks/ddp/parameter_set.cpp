#include "benchmarks/ddp/parameter_set.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace cohort::bench {
namespace {

void add_convolution(Shapes& shapes, int64_t outputs, int64_t inputs, int64_t size) {
  shapes.push_back({outputs, inputs, size, size});
  shapes.push_back({outputs});  // for the norm after it
  shapes.push_back({outputs});
}

void add_linear(Shapes& shapes, int64_t outputs, int64_t inputs) {
  shapes.push_back({outputs, inputs});
  shapes.push_back({outputs});
}

}  // namespace

Shapes resnet50_shapes() {
  Shapes shapes;
  add_convolution(shapes, 64, 3, 7);
  int64_t inputs = 64;
  for (const auto& [num_blocks, width] : {std::pair<int, int64_t>(3, 64), {4, 128}, {6, 256}, {3, 512}}) {
    for (int block = 0; block < num_blocks; ++block) {
      add_convolution(shapes, width, inputs, 1);
      add_convolution(shapes, width, width, 3);
      add_convolution(shapes, 4 * width, width, 1);
      if (block == 0) add_convolution(shapes, 4 * width, inputs, 1);
      inputs = 4 * width;
    }
  }
  add_linear(shapes, 1000, inputs);
  return shapes;
}

Shapes gpt_124m_shapes() {
  constexpr int64_t kWidth = 768;
  Shapes shapes{{50257, kWidth}, {1024, kWidth}};
  for (int layer = 0; layer < 12; ++layer) {
    shapes.insert(shapes.end(), {{kWidth}, {kWidth}});
    add_linear(shapes, 3 * kWidth, kWidth);
    add_linear(shapes, kWidth, kWidth);
    shapes.insert(shapes.end(), {{kWidth}, {kWidth}});
    add_linear(shapes, 4 * kWidth, kWidth);
    add_linear(shapes, kWidth, 4 * kWidth);
  }
  shapes.insert(shapes.end(), {{kWidth}, {kWidth}});
  return shapes;
}

int64_t num_inputs(const Shapes& shapes) {
  int64_t widest = 1;
  for (const auto& shape : shapes) {
    if (shape.size() > 1) widest = std::max(widest, c10::multiply_integers(shape) / shape.front());
  }
  return widest;
}

ParameterSet::ParameterSet(const Shapes& shapes) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    register_parameter("p" + std::to_string(i), at::empty(shapes[i]));
  }
}

at::Tensor ParameterSet::forward(const at::Tensor& x) {
  auto mean = at::zeros({});
  for (const auto& parameter : parameters()) {
    if (parameter.dim() == 1) {
      mean = mean + parameter.mean();
      continue;
    }
    const auto matrix = parameter.flatten(1);
    mean = (x.narrow(1, 0, matrix.size(1)) + mean).matmul(matrix.t()).mean();
  }
  return mean;
}

}  // namespace cohort::bench
