// Prints which functions ran, in order, and errors of checkpoints, as tests/e2e/parallel/checkpoint_test.py does in Python.
#include <cohort/parallel/activation/checkpoint.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cstdio>
#include <string>

namespace {

using cohort::CheckpointOptions;
using cohort::activation::checkpoint;

std::string trace;

at::Tensor input() { return torch::full({2, 3}, 0.5, at::requires_grad()); }

at::Tensor leaf(const at::Tensor& x) {
  trace += "(c";
  const auto y = x.exp().sin();
  trace += " c)";
  return y + 1;
}

void nested(bool early_stop, bool use_reentrant) {
  const CheckpointOptions options{.use_reentrant = use_reentrant, .early_stop = early_stop};
  const auto middle = [&](const at::Tensor& x) {
    trace += "(b";
    const auto y = checkpoint(options, leaf, x.sin()).cos();
    trace += " b)";
    return y;
  };
  const auto outer = [&](const at::Tensor& x) {
    trace += "(a";
    const auto y = checkpoint(options, middle, x.cos()).sin();
    trace += " a)";
    return y;
  };
  const auto y = checkpoint(options, outer, input()).sum();
  trace += " | ";
  y.backward({}, /*retain_graph=*/true);
  trace += " | ";
  y.backward();
}

void inside(bool early_stop) {
  const auto function = [](const at::Tensor& x) {
    trace += "(f";
    const auto z = x.sin().cos();
    const auto gradient = torch::autograd::grad({z.sum()}, {x}).front();
    trace += " g";
    const auto y = x.cos() * gradient;
    trace += " f)";
    return y;
  };
  const auto y = checkpoint({.early_stop = early_stop}, function, input()).sum();
  trace += " | ";
  y.backward();
}

template <class First, class Later>
void change(const CheckpointOptions& options, First first, Later later) {
  int num_runs = 0;
  const auto y = checkpoint(
      options, [&](const at::Tensor& x) { return num_runs++ ? at::Tensor(later(x)) : at::Tensor(first(x)); }, input());
  y.sum().backward();
}

template <class Scenario>
void print(const char* name, Scenario scenario) {
  trace.clear();
  try {
    scenario();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    trace += text.substr(0, text.find("\n\nTip:"));
  }
  std::printf("%s\n%s\n====\n", name, trace.c_str());
}

}  // namespace

int main() {
  for (const bool early_stop : {true, false}) {
    const std::string suffix = early_stop ? " early" : " full";
    print(("nested" + suffix).c_str(), [&] { nested(early_stop, false); });
    print(("inside" + suffix).c_str(), [&] { inside(early_stop); });
    const CheckpointOptions options{.early_stop = early_stop};
    const auto one = [](const at::Tensor& x) { return x.exp(); };
    const auto two = [](const at::Tensor& x) { return x.exp().sin(); };
    const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble).exp()[0].sin(); };
    print(("fewer" + suffix).c_str(), [&] { change(options, two, one); });
    print(("more" + suffix).c_str(), [&] { change(options, one, two); });
    print(("other" + suffix).c_str(), [&] { change(options, two, wide); });
  }
  print("nested reentrant", [] { nested(true, true); });
  print("grad reentrant", [] {
    const auto x = input();
    torch::autograd::grad({checkpoint({.use_reentrant = true}, leaf, x).sum()}, {x});
  });
  print("constant reentrant", [] {
    checkpoint(
        {.use_reentrant = true}, [](const at::Tensor& x) { return x.detach().exp(); }, input())
        .sum()
        .backward();
  });
  return 0;
}
