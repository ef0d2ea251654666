#include "cohort/rendezvous/settings.h"

#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

using Backend = Settings::Backend;

TEST(RendezvousSettings, OneNodeWithoutMoreStandsAlone) {
  const auto settings = parse_settings({}).value();
  EXPECT_EQ(settings.backend, Backend::kStandalone);
  EXPECT_EQ(settings.run_id.size(), 32u);
  EXPECT_NE(settings.run_id, parse_settings({}).value().run_id);
}

}  // namespace
}  // namespace cohort::rendezvous
