#include "cohort/rendezvous/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::rendezvous {
namespace {

using Backend = Settings::Backend;

TEST(RendezvousSettings, OneNodeWithoutMoreStandsAlone) {
  const auto settings = parse_settings({}).value();
  EXPECT_EQ(settings.backend, Backend::kStandalone);
  EXPECT_THAT(settings.run_id,
              testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_NE(settings.run_id, parse_settings({}).value().run_id);
}

}  // namespace
}  // namespace cohort::rendezvous
