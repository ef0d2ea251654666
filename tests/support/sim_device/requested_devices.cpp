#include "tests/support/sim_device/requested_devices.h"

#include <c10/util/Exception.h>

#include <string>

#include "cohort/base/system/env.h"
#include "cohort/base/text/text.h"

namespace cohort::sim {
namespace {

struct Request {
  Place place;
  Schedule schedule;
};

Request parse_request(const std::string& text) {
  if (text == "real") return {Place::kReal, {}};
  const auto words = base::split(text, ',');
  TORCH_CHECK_VALUE(words.size() == 2 && (words[0] == "sim" || words[0] == "cuda"),
                    "COHORT_TEST_SIM is a place, sim or cuda, a comma and a schedule, or real, got \"", text, "\"");
  return {words[0] == "cuda" ? Place::kCuda : Place::kPrivateUse1, schedule_named(words[1])};
}

Request request() { return parse_request(base::get_env("COHORT_TEST_SIM").value_or("sim,eager")); }

}  // namespace

void install_requested_devices() {
  if (is_installed()) return;
  install(request().place, kMaxDevices);
  set_schedule(requested_schedule());
}

Schedule requested_schedule() { return request().schedule; }

}  // namespace cohort::sim
