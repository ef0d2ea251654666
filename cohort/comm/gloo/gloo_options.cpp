#include "cohort/comm/gloo/gloo_options.h"

#include "cohort/job/network.h"

namespace cohort::comm {

c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> make_gloo_options(std::chrono::milliseconds timeout) {
  const auto addresses = job::gloo_addresses();
  TORCH_CHECK_VALUE(addresses.ok(), addresses.error().describe());
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  for (const auto& address : *addresses) {
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(address, c10d::getDefaultGlooLazyInit()));
  }
  return options;
}

}  // namespace cohort::comm
