#include "cohort/elastic/events/watch.h"

#include <poll.h>

namespace cohort::elastic {

void wait_for(std::vector<Watch>& watches, int milliseconds) {
  std::vector<pollfd> entries;
  for (const Watch& watch : watches) entries.push_back({watch.fd, watch.events, 0});
  if (::poll(entries.data(), entries.size(), milliseconds) <= 0) return;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].revents) watches[i].ready();
  }
}

}  // namespace cohort::elastic
