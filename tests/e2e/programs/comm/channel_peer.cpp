// Started by python_channel_test.py: doubles the tensors that Python sends, in place, and sends one of its own.
#include <ATen/ATen.h>
#include <cohort/comm/process/tensor_channel.h>

#include <iostream>

int main(int, char** argv) {
  try {
    auto channel = cohort::comm::TensorChannel::connect(argv[1]);
    auto tensor = channel.receive();
    tensor.mul_(2);
    auto own = at::arange(6, at::kFloat).view({2, 3}).t();
    channel.send(own);
    channel.receive();
    std::cout << tensor.sizes() << tensor.strides() << " " << own.sum().item<float>() << "\n" << std::flush;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n" << std::flush;
    return 1;
  }
  return 0;
}
