// Three short jobs with a toy model: plain data parallelism; a checkpoint that rank 0 writes and every rank loads; and a model
// whose two layers are on two devices.
//
//   build/bin/examples/toy_model --nprocs 2
//
// prints (lines of different ranks in any order):
//   running the basic DDP example on rank 0
//   running the basic DDP example on rank 1
//   running the DDP checkpoint example on rank 0
//   running the DDP checkpoint example on rank 1
//   every rank loaded the checkpoint of rank 0
//   skipping the model-parallel example: it needs 2 devices per rank, 2 ranks need 4, this machine has 0
// or, with enough devices, such as GPUs,
//   running the model-parallel DDP example on rank 0
//   rank 0 has trained a model on cuda:0 and cuda:1
#include <ATen/DeviceAccelerator.h>
#include <cohort/checkpoint/file/torch_file.h>
#include <cohort/checkpoint/state/state_dict.h>
#include <cohort/comm/collectives/collectives.h>
#include <cohort/comm/process/spawn.h>
#include <cohort/parallel/ddp/distributed_data_parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

namespace {

namespace fs = std::filesystem;

struct ToyModelImpl : torch::nn::Module {
  ToyModelImpl() {
    register_module("net1", net1);
    register_module("net2", net2);
  }
  at::Tensor forward(const at::Tensor& x) { return net2(torch::relu(net1(x))); }

  torch::nn::Linear net1{10, 10};
  torch::nn::Linear net2{10, 5};
};
TORCH_MODULE(ToyModel);

// The same network with each layer on its own device; forward moves the activations.
struct ToyMpModelImpl : torch::nn::Module {
  ToyMpModelImpl(at::Device dev0, at::Device dev1) : dev0(dev0), dev1(dev1) {
    register_module("net1", net1)->to(dev0);
    register_module("net2", net2)->to(dev1);
  }
  at::Tensor forward(const at::Tensor& x) { return net2(torch::relu(net1(x.to(dev0))).to(dev1)); }

  at::Device dev0, dev1;
  torch::nn::Linear net1{10, 10};
  torch::nn::Linear net2{10, 5};
};
TORCH_MODULE(ToyMpModel);

template <typename Model>
void train_one_step(Model& model, at::Device output_device) {
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.001);
  optimizer.zero_grad();
  const at::Tensor outputs = model(torch::randn({20, 10}));
  torch::nn::functional::mse_loss(outputs, torch::randn({20, 5}).to(output_device)).backward();
  optimizer.step();
}

void demo_basic(int rank, const fs::path&) {
  std::printf("running the basic DDP example on rank %d\n", rank);
  // Ranks start from different random values; the wrapper broadcasts rank 0's.
  cohort::DistributedDataParallel model(ToyModel{});
  train_one_step(model, at::kCPU);
}

void demo_checkpoint(int rank, const fs::path& folder) {
  std::printf("running the DDP checkpoint example on rank %d\n", rank);
  cohort::DistributedDataParallel model(ToyModel{});
  const std::string path = folder / "model.pt";
  // All ranks have the same values, so one file by one rank is enough. torch.load() in Python reads it, too.
  if (rank == 0) cohort::checkpoint::save(cohort::checkpoint::state_dict(model->module()), path);
  cohort::barrier();  // no rank loads before the file is complete
  const std::map<std::string, std::string> map_location = {{"cuda:0", "cuda:" + std::to_string(rank)}};
  cohort::checkpoint::load_state_dict(model->module(),
                                      cohort::checkpoint::load_tensors(path, {.map_location = map_location}));
  train_one_step(model, at::kCPU);
  // The all-reduce in backward has already made every rank wait until the others have loaded.
  if (rank == 0) fs::remove(path);
  if (rank == 0) std::printf("every rank loaded the checkpoint of rank 0\n");
}

void demo_model_parallel(int rank, const fs::path&) {
  const int nprocs = cohort::get_world_size();
  const int num_devices = at::accelerator::deviceCount();
  if (num_devices < 2 * nprocs) {
    if (rank == 0) {
      std::printf(
          "skipping the model-parallel example: it needs 2 devices per rank, %d ranks need %d, this machine has %d\n",
          nprocs, 2 * nprocs, num_devices);
    }
    return;
  }
  std::printf("running the model-parallel DDP example on rank %d\n", rank);
  const auto type = at::getAccelerator(/*checked=*/true).value();
  const at::Device dev0(type, static_cast<c10::DeviceIndex>(2 * rank));
  const at::Device dev1(type, static_cast<c10::DeviceIndex>(2 * rank + 1));
  // A model that spans devices is wrapped without device_ids.
  cohort::DistributedDataParallel model(ToyMpModel(dev0, dev1));
  train_one_step(model, dev1);
  std::printf("rank %d has trained a model on %s and %s\n", rank, dev0.str().c_str(), dev1.str().c_str());
}

// Each demo starts new processes, so that the parent never uses a GPU, which its children could then not use. Backend "cohort"
// uses the best backend for each device.
void run_demo(const std::function<void(int, const fs::path&)>& demo, int nprocs, const fs::path& folder) {
  fs::remove(folder / "meeting");
  cohort::spawn(
      [&](int rank) {
        cohort::init_process_group({.backend = "cohort",
                                    .init_method = "file://" + (folder / "meeting").string(),
                                    .world_size = nprocs,
                                    .rank = rank});
        demo(rank, folder);
        cohort::destroy_process_group();
      },
      nprocs);
}

}  // namespace

int main(int argc, char** argv) {
  int nprocs = 2;
  CLI::App app("Toy models: DDP, a checkpoint, and a model on two devices.");
  app.add_option("--nprocs", nprocs, "number of processes")->check(CLI::Range(1, 1000000));
  CLI11_PARSE(app, argc, argv);

  const fs::path folder = fs::temp_directory_path() / ("toy_model." + std::to_string(::getpid()));
  fs::create_directory(folder);
  int status = 0;
  try {
    run_demo(demo_basic, nprocs, folder);
    run_demo(demo_checkpoint, nprocs, folder);
    run_demo(demo_model_parallel, nprocs, folder);
  } catch (const cohort::ProcessFailedError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    status = 1;
  }
  fs::remove_all(folder);
  return status;
}
