#include "cohort/comm/gloo/gloo_options.h"

#include "cohort/comm/error/throw_error.h"
#include "cohort/job/network.h"

namespace cohort::comm {

c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> make_gloo_options(std::chrono::milliseconds timeout) {
  const auto addresses = or_throw_value(job::gloo_addresses());
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  for (const auto& address : addresses) {
    options->devices.push_back(
        c10d::ProcessGroupGloo::createDeviceForHostname(address, c10d::getDefaultGlooLazyInit()));
  }
  return options;
}

}  // namespace cohort::comm
