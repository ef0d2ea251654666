#include "cohort/shm/report/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cohort/shm/report/pickle.h"
#include "tests/shm/report/fabricated_trace.h"

namespace cohort::shm {
namespace {

using nlohmann::json;
using test::make_call;
using test::make_rank;
using test::make_trace;
using State = CallRecord::State;

GroupTrace make_group(std::vector<RankTrace> ranks) {
  return {.name = "0", .description = "0", .global_ranks = {0, 1, 2}, .ranks = std::move(ranks)};
}

TEST(TraceText, SaysWhoDoesWhatAndWhoIsMissing) {
  EXPECT_EQ(to_text(make_trace()), R"(flight recorder of pid 4711 on n1 (rank 0), 2026-11-21 08:42:34.125 UTC
written because of signal 10 (SIGUSR1)

group "default_pg" (name "0"), 3 ranks
  rank  process                             now                                                          since   call site
  0     pid 4711 on n1                      #3 all_reduce(SUM) of 8 float32: started (and 1 more)        30.0 s  gpt+0x1a2b (main)
  1     pid 4712 on n1, is gone             idle after #2 broadcast from rank 0 of 8 float32: completed  41.0 s  gpt+0x1a2b (main)
  2     pid 4713 on n1, has left the group  idle after #1 all_reduce(SUM) of 8 float32: failed           42.0 s  gpt+0x1a2b (main)
  collective #3 is not called by all ranks:
    rank 0 calls all_reduce(SUM) of 8 float32
    rank 1 has not called it; its last one is #2 broadcast from rank 0 of 8 float32, completed, 41.0 s ago
  rank 0, last operations
    created          number  operation                           state      took           call site
    08:41:52.125000  #1      all_reduce(SUM) of 8 float32        completed  2 ms           gpt+0x1a2b (main)
    08:41:53.125000  #2      broadcast from rank 0 of 8 float32  completed  2 ms           gpt+0x1a2b (main)
    08:42:04.124000  #3      all_reduce(SUM) of 8 float32        started    30.0 s so far  gpt+0x1a2b (main)
    08:42:14.125000  p2p #1  send to rank 1 of 8 float32, tag 5  scheduled
  rank 1, last operations
    created          number  operation                           state      took  call site
    08:41:52.125000  #1      all_reduce(SUM) of 8 float32        completed  2 ms  gpt+0x1a2b (main)
    08:41:53.125000  #2      broadcast from rank 0 of 8 float32  completed  2 ms  gpt+0x1a2b (main)
  rank 2, last operations
    created          number  operation                     state   took  call site
    08:41:52.125000  #1      all_reduce(SUM) of 8 float32  failed  2 ms  gpt+0x1a2b (main)
)");
}

TEST(TraceText, OfAGroupWithOtherNumbersInTheJob) {
  ProcessTrace trace = make_trace();
  trace.rank = -1;
  trace.reason = "";
  trace.groups[0].name = "default_pg";
  trace.groups[0].global_ranks = {4, 5, 7};
  for (RankTrace& rank : trace.groups[0].ranks) rank.records.clear();
  trace.groups[0].ranks[2].presence = RankTrace::Presence::kAbsent;
  EXPECT_EQ(to_text(trace), R"(flight recorder of pid 4711 on n1, 2026-11-21 08:42:34.125 UTC

group "default_pg", 3 ranks
  rank              process                  now          since  call site
  0 (4 in the job)  pid 4711 on n1           nothing yet
  1 (5 in the job)  pid 4712 on n1, is gone  nothing yet
  2 (7 in the job)  never arrived            nothing yet
)");
}

TEST(TraceText, SaysHowCallsDiffer) {
  ProcessTrace trace = make_trace();
  trace.groups = {make_group({make_rank(0, {make_call(1, OpKind::kAllReduce, State::kStarted, 1)}),
                              make_rank(1, {make_call(1, OpKind::kBarrier, State::kStarted, 1)}), make_rank(2, {})})};
  EXPECT_THAT(to_text(trace), testing::HasSubstr(R"(  collective #1 differs:
    rank 0 calls all_reduce(SUM) of 8 float32
    rank 1 calls barrier
    rank 2 has not called it, nor any other
)"));
}

TEST(TraceText, WithoutGroups) {
  ProcessTrace trace = make_trace();
  trace.groups.clear();
  EXPECT_EQ(to_text(trace), R"(flight recorder of pid 4711 on n1 (rank 0), 2026-11-21 08:42:34.125 UTC
written because of signal 10 (SIGUSR1)

no group
)");
}

TEST(TraceText, ShowsTheLastTenOperations) {
  std::vector<CallRecord> records;
  for (uint64_t number = 1; number <= 15; ++number) {
    records.push_back(make_call(number, OpKind::kBarrier, State::kCompleted, 20.0 - static_cast<double>(number)));
  }
  ProcessTrace trace = make_trace();
  trace.groups = {make_group({make_rank(0, records)})};
  const std::string text = to_text(trace);
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("  #5  ")));
  EXPECT_THAT(text,
              testing::HasSubstr("\n    08:42:20.125000  #6      barrier    completed  2 ms  gpt+0x1a2b (main)\n"));
  EXPECT_THAT(text, testing::HasSubstr("  #15  "));
  EXPECT_THAT(text, testing::HasSubstr("  ranks have called the same collectives, up to #15\n"));
}

TEST(DescribeCall, InTheWordsOfErrors) {
  CallRecord record = make_call(1, OpKind::kAllReduce, State::kStarted, 0);
  EXPECT_EQ(describe_call(record), "all_reduce(SUM) of 8 float32");
  record = make_call(1, OpKind::kReduceScatter, State::kStarted, 0);
  record.num_inputs = 16;
  record.reduce_op = ReduceOp::kAvg;
  EXPECT_EQ(describe_call(record), "reduce_scatter(AVG) of 8 float32");
  record = make_call(1, OpKind::kAllToAll, State::kStarted, 0);
  record.num_outputs = 9;
  EXPECT_EQ(describe_call(record), "all_to_all of 8 float32 for 9");
  record = make_call(1, OpKind::kRecv, State::kStarted, 0);
  record.is_p2p = true;
  record.tag = 3;
  EXPECT_EQ(describe_call(record), "recv from any rank of 8 float32, tag 3");
  record.kind = OpKind::kSend;
  record.root = 2;
  EXPECT_EQ(describe_call(record), "send to rank 2 of 8 float32, tag 3");
}

TEST(FindDifference, NothingWhileRanksAgree) {
  const auto call = make_call(1, OpKind::kBarrier, State::kCompleted, 1);
  EXPECT_EQ(find_difference(make_group({make_rank(0, {call}), make_rank(1, {call})})), std::nullopt);
  EXPECT_EQ(find_difference(make_group({make_rank(0, {}), make_rank(1, {})})), std::nullopt);
  EXPECT_EQ(find_difference(make_group({})), std::nullopt);
}

TEST(FindDifference, OperationsThatDiffer) {
  const auto barrier = make_call(7, OpKind::kBarrier, State::kStarted, 1);
  auto all_reduce = make_call(7, OpKind::kAllReduce, State::kStarted, 1);
  all_reduce.num_inputs = all_reduce.num_outputs = 3;
  const Difference expected{
      .collective_seq_id = 7, .parties = {{"barrier", {0, 2}}, {"all_reduce(SUM) of 3 float32", {1}}}, .missing = {}};
  EXPECT_EQ(find_difference(make_group({make_rank(0, {barrier}), make_rank(1, {all_reduce}), make_rank(2, {barrier})})),
            expected);
}

TEST(FindDifference, UnevenPartsAreNoDifference) {
  auto gather = make_call(1, OpKind::kGather, State::kStarted, 1);
  gather.root = 0;
  auto gather_on_root = gather;
  gather_on_root.num_outputs = 16;
  EXPECT_EQ(find_difference(make_group({make_rank(0, {gather_on_root}), make_rank(1, {gather})})), std::nullopt);
  auto all_to_all = make_call(1, OpKind::kAllToAll, State::kStarted, 1);
  auto larger = all_to_all;
  larger.num_inputs = 100;
  EXPECT_EQ(find_difference(make_group({make_rank(0, {all_to_all}), make_rank(1, {larger})})), std::nullopt);
}

TEST(FindDifference, ARankFarBehind) {
  const auto early = make_call(10, OpKind::kBarrier, State::kCompleted, 1);
  const auto late = make_call(5000, OpKind::kBarrier, State::kStarted, 1);
  const Difference expected{.collective_seq_id = 11, .parties = {}, .missing = {1}};
  EXPECT_EQ(find_difference(make_group({make_rank(0, {late}), make_rank(1, {early})})), expected);
}

TEST(FindDifference, RanksThatHaveLeftAreNotMissed) {
  const auto early = make_call(10, OpKind::kBarrier, State::kCompleted, 1);
  const auto late = make_call(5'000'000'000'000, OpKind::kBarrier, State::kStarted, 1);
  GroupTrace group = make_group({make_rank(0, {late}), make_rank(1, {early}), make_rank(2, {})});
  group.ranks[1].presence = group.ranks[2].presence = RankTrace::Presence::kLeft;
  EXPECT_EQ(find_difference(group), std::nullopt);
}

TEST(FindDifference, SendsDoNotCount) {
  auto send = make_call(1, OpKind::kSend, State::kStarted, 1);
  send.is_p2p = true;
  EXPECT_EQ(find_difference(make_group({make_rank(0, {send}), make_rank(1, {})})), std::nullopt);
}

TEST(TraceJson, HasPyTorchsFields) {
  const json trace = json::parse(to_json(make_trace()));
  EXPECT_EQ(trace["version"], "2.10");
  EXPECT_EQ(trace["pg_config"],
            json::parse(R"json({"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}})json"));
  EXPECT_EQ(trace["pg_status"], json::parse(R"json({"0": {"last_enqueued_collective": 3, "last_started_collective": 3,
                                                      "last_completed_collective": 2}})json"));
  EXPECT_EQ(trace["rank"], 0);
  EXPECT_EQ(trace["reason"], "signal 10 (SIGUSR1)");
  EXPECT_EQ(trace["ranks"].size(), 3);
  EXPECT_EQ(trace["ranks"][1], json::parse(R"json({"rank": 1, "process_group": ["0", "default_pg"], "group_rank": 1,
      "pid": 4712, "host": "n1", "process": "is gone", "last_enqueued_collective": 2, "last_started_collective": 2,
      "last_completed_collective": 2})json"));
  ASSERT_EQ(trace["entries"].size(), 7);
  EXPECT_EQ(trace["entries"][0], json::parse(R"json({
    "frames": [{"name": "main", "filename": "gpt+0x1a2b", "line": 0}],
    "record_id": 1, "pg_id": 0, "process_group": ["0", "default_pg"], "thread_name": "", "thread_id": "77",
    "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1, "profiling_name": "shm:all_reduce",
    "time_created_ns": 1795250512125000000, "duration_ms": 2.0,
    "input_sizes": [[8]], "input_dtypes": ["Float"], "output_sizes": [[8]], "output_dtypes": ["Float"],
    "state": "completed", "time_discovered_started_ns": 1795250512126000000,
    "time_discovered_completed_ns": 1795250512128000000, "retired": true, "timeout_ms": 1800000, "is_p2p": false,
    "failed": false, "rank": 0, "reduce_op": "SUM", "root": -1, "tag": 0})json"));
}

TEST(TraceJson, OfWhatIsNotOver) {
  const json entries = json::parse(to_json(make_trace()))["entries"];
  EXPECT_EQ(entries[2]["state"], "started");
  EXPECT_EQ(entries[2]["retired"], false);
  EXPECT_EQ(entries[2]["time_discovered_completed_ns"], 0);
  EXPECT_FALSE(entries[2].contains("duration_ms"));
  EXPECT_EQ(entries[3]["profiling_name"], "shm:send 0->1");
  EXPECT_EQ(entries[3]["state"], "scheduled");
  EXPECT_EQ(entries[3]["is_p2p"], true);
  EXPECT_EQ(entries[3]["collective_seq_id"], 3);
  EXPECT_EQ(entries[3]["p2p_seq_id"], 1);
  EXPECT_EQ(entries[3]["frames"], json::array());
}

TEST(TraceJson, AFailedOperationIsRetiredInItsLastState) {
  const json entry = json::parse(to_json(make_trace()))["entries"][6];
  EXPECT_EQ(entry["rank"], 2);
  EXPECT_EQ(entry["state"], "started");
  EXPECT_EQ(entry["retired"], true);
  EXPECT_EQ(entry["failed"], true);
  EXPECT_EQ(entry["time_discovered_completed_ns"], 0);
}

TEST(TraceJson, GroupsOfOneNameAreToldApart) {
  ProcessTrace trace = make_trace();
  trace.groups.push_back(trace.groups[0]);
  const json parsed = json::parse(to_json(trace));
  EXPECT_EQ(parsed["pg_config"]["0 (2)"]["desc"], "default_pg");
  EXPECT_EQ(parsed["entries"][7]["process_group"][0], "0 (2)");
}

TEST(TraceJson, TextsThatAreNotUtf8) {
  ProcessTrace trace = make_trace();
  trace.groups[0].description = trace.host = trace.groups[0].ranks[0].records[0].call_site = "\xff\xfe";
  EXPECT_EQ(json::parse(to_json(trace))["host"], "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_TRUE(json::parse(to_chrome_trace(trace)).is_object());
  EXPECT_FALSE(to_pickle(trace, 0).empty());
  EXPECT_FALSE(to_text(trace).empty());
}

TEST(TracePickle, IsOfProtocolTwo) {
  using namespace std::string_literals;
  const auto value = nlohmann::ordered_json{{"n", {7, true, nullptr, 0.5}}, {"\xff", false}};
  EXPECT_EQ(pickle(value),
            "\x80\x02}("
            "X\x01\0\0\0n]("
            "K\x07\x88NG\x3f\xe0\0\0\0\0\0\0"
            "eX\x03\0\0\0\xef\xbf\xbd\x89"
            "u."s);
}

TEST(TraceJson, WithoutGroups) {
  const json parsed = json::parse(to_json({}));
  EXPECT_EQ(parsed["entries"], json::array());
  EXPECT_EQ(json::parse(to_chrome_trace({}))["traceEvents"], json::array());
}

TEST(ChromeTrace, HasARowPerRankAndGroup) {
  const json trace = json::parse(to_chrome_trace(make_trace()));
  EXPECT_EQ(trace["baseTimeNanoseconds"], 1'795'219'200'000'000'000);
  const json events = trace["traceEvents"];
  ASSERT_EQ(events.size(), 6 + 3 + 7);
  EXPECT_EQ(events[0], json::parse(R"json({"name": "thread_name", "ph": "M", "pid": 0, "tid": 0,
                                       "args": {"name": "default_pg"}})json"));
  EXPECT_EQ(events[1], json::parse(R"json({"name": "thread_name", "ph": "M", "pid": 0, "tid": 1,
                                       "args": {"name": "default_pg, sends and receives"}})json"));
  EXPECT_EQ(events[7], json::parse(R"json({"name": "process_name", "ph": "M", "pid": 1, "tid": 0,
                                       "args": {"name": "rank 1 (pid 4712 on n1)"}})json"));
  EXPECT_EQ(events[9],
            json::parse(R"json({"name": "all_reduce", "cat": "shm", "ph": "X", "ts": 31312126000.0, "dur": 2000.0,
      "pid": 0, "tid": 0, "args": {"call": "all_reduce(SUM) of 8 float32", "state": "completed", "seq_id": 1,
      "queued_us": 1000.0, "call_site": "gpt+0x1a2b (main)"}})json"));
  // What still runs, or waits, reaches to the dump.
  EXPECT_EQ(events[11]["dur"], 30'000'000.0);
  EXPECT_EQ(events[12]["name"], "send 0->1");
  EXPECT_EQ(events[12]["tid"], 1);
  EXPECT_EQ(events[12]["dur"], 20'000'000.0);
}

}  // namespace
}  // namespace cohort::shm
