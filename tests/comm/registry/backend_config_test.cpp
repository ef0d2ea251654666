#include "cohort/comm/registry/backend_config.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "cohort/comm/registry/default_timeout.h"

namespace cohort::comm {
namespace {

using c10::DeviceType;

const std::vector<BackendCapability>& known() {
  static const std::vector<BackendCapability> backends{
      {.name = "gloo", .devices = {DeviceType::CPU, DeviceType::CUDA}, .default_for = {DeviceType::CPU}},
      {.name = "nccl", .devices = {DeviceType::CUDA}, .default_for = {DeviceType::CUDA}}};
  return backends;
}

std::string parsed(const std::string& text, std::optional<DeviceType> accelerator = std::nullopt) {
  return to_string(parse_backend(text, accelerator, known()));
}

std::string config_error(const std::string& text) {
  try {
    return "no error, but " + parsed(text);
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
}

TEST(BackendConfig, NameAloneServesAllItsDevices) {
  EXPECT_EQ(parsed("gloo"), "cpu:gloo,cuda:gloo");
  EXPECT_EQ(parsed("NCCL"), "cuda:nccl");
}

TEST(BackendConfig, EmptyTakesTheDefaultOfTheAccelerator) {
  EXPECT_EQ(parsed(""), "cpu:gloo");
  EXPECT_EQ(parsed("", DeviceType::CUDA), "cuda:nccl");
}

TEST(BackendConfig, PairsSayWhatServesWhat) {
  EXPECT_EQ(parsed("cpu:gloo,cuda:nccl"), "cpu:gloo,cuda:nccl");
  EXPECT_EQ(parsed("cuda:gloo"), "cuda:gloo");
}

TEST(BackendConfig, RefusesMalformedTextMessage) {
  EXPECT_EQ(config_error("mpi"),
            "[cohort] Unknown backend \"mpi\" (known: gloo, nccl; others can be added by register_backend)");
  EXPECT_EQ(config_error("cpu:gloo,nccl"),
            "Invalid device:backend pairing: \"nccl\" in the backend string \"cpu:gloo,nccl\"; the form is "
            "\"<device>:<backend>,<device>:<backend>\", such as \"cpu:gloo,cuda:nccl\"");
  EXPECT_EQ(config_error("cpu:gloo,cpu:gloo"), "Duplicate device type cpu in the backend string \"cpu:gloo,cpu:gloo\"");
  EXPECT_EQ(config_error("tpu:gloo"),
            "[cohort] Unknown device \"tpu\" in the backend string \"tpu:gloo\" (known: cpu, cuda)");
  EXPECT_EQ(config_error("cpu:nccl"),
            "[cohort] backend \"nccl\" does not serve cpu tensors (backend string \"cpu:nccl\")");
}

TEST(BackendConfig, DefaultBackendForDeviceMessage) {
  EXPECT_EQ(default_backend_for(DeviceType::CPU, known()), "gloo");
  EXPECT_EQ(default_backend_for(DeviceType::CUDA, known()), "nccl");
  try {
    default_backend_for(DeviceType::XLA, known());
    FAIL();
  } catch (const c10::ValueError& error) {
    EXPECT_STREQ(error.what_without_backtrace(), "Default backend not registered for device : xla");
  }
}

TEST(DefaultTimeout, IsPyTorchsAndTheLongestOfSeveralBackends) {
  const auto of = [](const std::vector<std::string>& names) {
    std::vector<DeviceBackend> config;
    for (const auto& name : names) config.push_back({DeviceType::CPU, name});
    return checked_timeout({}, config);
  };
  EXPECT_EQ(of({"gloo"}), std::chrono::minutes(30));
  EXPECT_EQ(of({"shm"}), std::chrono::minutes(30));
  EXPECT_EQ(of({"cohort"}), std::chrono::minutes(30));
  EXPECT_EQ(of({"nccl"}), std::chrono::minutes(10));
  EXPECT_EQ(of({"nccl", "gloo"}), std::chrono::minutes(30));
  EXPECT_EQ(checked_timeout(std::chrono::seconds(7), {{DeviceType::CPU, "nccl"}}), std::chrono::seconds(7));
}

}  // namespace
}  // namespace cohort::comm
