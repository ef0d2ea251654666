#include "cohort/elastic/report/health_check.h"

#include <gtest/gtest.h>

#include "cohort/base/net/port.h"
#include "cohort/store/stream/socket.h"

namespace cohort::elastic {
namespace {

TEST(HealthCheck, AnswerIsOneLineOfJson) {
  const HealthState state{.state = "running", .round = 2, .restarts = 1, .workers = 4};
  const base::HttpResponse answer = answer_health_check({.method = "GET", .path = "/any"}, state);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.content_type, "application/json");
  EXPECT_EQ(answer.body, "{\"state\":\"running\",\"round\":2,\"restarts\":1,\"workers\":4}\n");
  EXPECT_EQ(answer_health_check({.method = "HEAD", .path = "/"}, state).status, 200);
}

TEST(HealthCheck, WorkersThatDoNotEndAreNotWell) {
  EXPECT_EQ(answer_health_check({.method = "GET", .path = "/"}, {.state = "killing", .is_well = false}).status, 503);
}

TEST(HealthCheck, OnlyAnswersReadersMessage) {
  const base::HttpResponse answer = answer_health_check({.method = "POST", .path = "/"}, {});
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.body, "a health check must be a GET request\n");
}

TEST(HealthCheck, APortInUseNamesItsHolder) {
  const auto taken = store::listen_on("", 0).value();
  const auto check = HealthCheck::create(taken.front().port, [] { return HealthState{}; });
  ASSERT_FALSE(check);
  const std::string text = check.error().describe();
  EXPECT_NE(text.find(":" + std::to_string(taken.front().port) + ": Address already in use (EADDRINUSE)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("it is held by process " + std::to_string(::getpid())), std::string::npos) << text;
}

}  // namespace
}  // namespace cohort::elastic
