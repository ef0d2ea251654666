#include "cohort/elastic/plan/host_devices.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace cohort::elastic {
namespace {

TEST(HostDevices, LocalWorldSizeWords) {
  EXPECT_EQ(*parse_local_world_size("3", {.num_cores = 8}), 3);
  EXPECT_EQ(*parse_local_world_size("cpu", {.num_cores = 8, .num_gpus = 2}), 8);
  EXPECT_EQ(*parse_local_world_size("gpu", {.num_cores = 8, .num_gpus = 2}), 2);
  EXPECT_EQ(*parse_local_world_size("auto", {.num_cores = 8, .num_gpus = 2}), 2);
  EXPECT_EQ(*parse_local_world_size("auto", {.num_cores = 8, .num_gpus = 0}), 8);
}

TEST(HostDevices, LocalWorldSizeErrorsMessage) {
  const HostDevices devices = {.num_cores = 8, .num_gpus = 0};
  EXPECT_EQ(parse_local_world_size("gpus", devices).error().describe(),
            "Unsupported nproc_per_node value: gpus (did you mean \"gpu\"?)\n"
            "  hint: give a number, auto, cpu or gpu");
  EXPECT_EQ(parse_local_world_size("gpu", devices).error().describe(),
            "--nproc-per-node=gpu: Cuda is not available.\n"
            "  hint: give a number, cpu or auto: this host has no /dev/nvidia0");
  EXPECT_EQ(parse_local_world_size("xpu", devices).error().describe(),
            "--nproc-per-node=xpu: this launcher can only count CPUs and CUDA GPUs, because it does not link LibTorch\n"
            "  hint: give their number, as in --nproc-per-node=4");
  EXPECT_EQ(parse_local_world_size("0", devices).error().describe(), "--nproc-per-node=0 must be from 1 to 1048576");
}

TEST(HostDevices, ListOfGpusMessage) {
  for (const char* list : {"", "0", "2, 0", "GPU-8e1f,MIG-2", "0,GPU-8e1f"}) EXPECT_TRUE(check_gpus(list).ok()) << list;
  const std::string hint = "\n  hint: give numbers, as in --gpus=0,2, or names as nvidia-smi -L shows them";
  EXPECT_EQ(check_gpus("0,x").error().describe(), "--gpus=0,x: \"x\" is neither a GPU's number nor its name" + hint);
  EXPECT_EQ(check_gpus("0,").error().describe(), "--gpus=0,: \"\" is neither a GPU's number nor its name" + hint);
  EXPECT_EQ(check_gpus("-1").error().describe(), "--gpus=-1: \"-1\" is neither a GPU's number nor its name" + hint);
  EXPECT_EQ(check_gpus("0,1,00").error().describe(), "--gpus=0,1,00 has GPU 00 twice");
}

TEST(HostDevices, CountsGpusThatCudaWouldShow) {
  const test::TemporaryFolder devices;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "null"}) {
    std::ofstream(devices / name) << "";
  }
  EXPECT_EQ(count_gpus(devices.path(), std::nullopt), 3);
  EXPECT_EQ(count_gpus(devices.path(), "2,0"), 2);
  EXPECT_EQ(count_gpus(devices.path(), ""), 0);
  EXPECT_EQ(count_gpus(devices.path(), "1,-1,0"), 1);
  EXPECT_EQ(count_gpus(devices.path(), "GPU-abc,MIG-def"), 2);
  EXPECT_EQ(count_gpus(devices / "missing", std::nullopt), 0);
}

}  // namespace
}  // namespace cohort::elastic
