// What etcd answers: base64, leases, ranges and transactions in JSON. An input is a line of letters, one for each operation of
// EtcdStore, and a line for each answer: its HTTP status, a space and a text.
#include <fmt/format.h>

#include <string>

#include "cohort/base/log/log.h"
#include "cohort/base/text/text.h"
#include "cohort/store/etcd/etcd_store.h"
#include "cohort/store/tls/base64.h"
#include "tests/fuzz/fuzz.h"
#include "tests/store/scripted_stream.h"

namespace cohort::store {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostOperations = 20;
constexpr std::string_view kNoMore = R"(400 {"code":5,"message":"no more answers are written down"})";

std::string http_answer(std::string_view line) {
  auto body = line;
  const auto status = base::parse_int(fuzz::take_until(&body, ' ')).value_or(0);
  const bool has_status = status >= 200 && status <= 599;
  return fmt::format("HTTP/1.1 {} .\r\nContent-Length: {}\r\n\r\n{}", has_status ? status : 200,
                     (has_status ? body : line).size(), has_status ? body : line);
}

void run(EtcdStore& store, char operation) {
  switch (operation) {
    case 's':
      return (void)store.set("key", "value");
    case 'g':
      return (void)store.get("key");
    case 'a':
      return (void)store.add("key", 1);
    case 'c':
      return (void)store.compare_set("key", "", "desired");
    case 'd':
      return (void)store.delete_key("key");
    case 'k':
      return (void)store.check({"a", "b"});
    case 'n':
      return (void)store.num_keys();
    case 'w':
      return (void)store.wait({"a"}, milliseconds(0));
    case '+':
      return (void)store.append("key", "more");
    case 'm':
      return (void)store.multi_get({"a", "b"});
    case 'u':
      return (void)store.queue_push("queue", "entry");
    case 'p':
      return (void)store.queue_pop("queue", /*block=*/false);
    case 'q':
      return (void)store.queue_len("queue");
    case 'r':
      return (void)store.remove_all();
    default:
      return (void)store.list_keys();
  }
}

void use_store(std::string_view operations, std::string_view answers) {
  const auto next = [&answers] { return http_answer(answers.empty() ? kNoMore : fuzz::take_until(&answers, '\n')); };
  const auto open = [next] { return std::make_unique<ScriptedStream>(next); };
  auto store = EtcdStore::connect(
      {.host = "host", .job = "job", .timeout = milliseconds(0), .retry_time = milliseconds(0), .open = open});
  if (!store) return;
  for (const char operation : operations) run(**store, operation);
}

void check_base64(std::string_view text) {
  const auto bytes = from_base64(text);
  FUZZ_CHECK(!bytes || text.find_first_of(" \t\r\n-") == std::string_view::npos);
  FUZZ_CHECK(!bytes || to_base64(*bytes).size() == text.size());
  FUZZ_CHECK(from_base64(to_base64(text)) == text);
}

}  // namespace
}  // namespace cohort::store

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  cohort::base::set_log_level(cohort::base::LogLevel::kError);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  auto rest = fuzz::text_of(data, size);
  store::check_base64(rest);
  const auto operations = fuzz::take_until(&rest, '\n').substr(0, store::kMostOperations);
  store::check_base64(operations);
  store::use_store(operations, rest);
  return 0;
}
