#include "cohort/rendezvous/rendezvous.h"

#include <fmt/format.h>
#include <system_error>

#include "cohort/base/log/log.h"
#include "cohort/base/process/process.h"
#include "cohort/base/text/text.h"
#include "cohort/rendezvous/meeting.h"
#include "cohort/rendezvous/standalone.h"

namespace cohort::rendezvous {

namespace {

base::Result<std::unique_ptr<Rendezvous>> start_any(Settings settings) {
  if (settings.family == base::IpFamily::kAny) {
    const auto family = base::forced_ip_family();
    if (!family) return family.error();
    settings.family = *family;
  }
  for (const auto& warning : settings.warnings) base::warn_once(warning);
  if (settings.ignores_node_rank) {
    base::warn_once(fmt::format(
        "--node-rank={} is ignored: it belongs to --rdzv-backend=static; ranks follow from the hosts' names",
        settings.node_rank));
  }
  if (settings.backend == Settings::Backend::kStandalone) return start_standalone(settings);
  auto place = MeetingPlace::open(settings);
  if (!place) return place.error();
  return std::unique_ptr<Rendezvous>(std::make_unique<Meeting>(settings, std::move(*place)));
}

}  // namespace

base::Result<std::unique_ptr<Rendezvous>> Rendezvous::start(const Settings& settings) {
  try {
    return start_any(settings);
  } catch (const std::system_error& error) {  // from std::thread
    return base::no_process("cannot start a thread for the rendezvous", error.code().value());
  }
}

}  // namespace cohort::rendezvous
