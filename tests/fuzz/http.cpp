// HTTP, both ends: after a 'Q' what a client sends to base/http_server, after any other letter what a server answers to
// store/http_client.
#include <string>

#include "cohort/base/net/http_server.h"
#include "cohort/store/etcd/http_client.h"
#include "tests/fuzz/fuzz.h"
#include "tests/store/scripted_stream.h"

namespace cohort::fuzz {
namespace {

constexpr size_t kMaxHead = 8 * 1024;
constexpr size_t kMaxBody = 64 * 1024;

void check_progress(const base::HttpProgress& progress, size_t num_bytes) {
  FUZZ_CHECK(progress.status == 0 || progress.status == 200 || (progress.status >= 400 && progress.status < 600));
  // The server reads no more than this, so nothing would ever come of it.
  FUZZ_CHECK(num_bytes <= kMaxHead + kMaxBody || progress.status != 0);
  if (progress.status != 200) return;
  const auto& request = progress.request;
  FUZZ_CHECK(request.path.starts_with('/') && !request.method.empty());
  FUZZ_CHECK(request.body.size() <= kMaxBody);
  size_t sum = request.method.size() + request.path.size() + request.body.size();
  for (const auto& [name, value] : request.parameters) sum += name.size() + value.size();
  FUZZ_CHECK(sum <= num_bytes);
}

void parse_request(std::string_view bytes) {
  check_progress(base::parse_http_request(bytes), bytes.size());
  check_progress(base::parse_http_request(bytes.substr(0, bytes.size() / 2)), bytes.size() / 2);
  if (bytes.empty() || bytes.size() % 16 != 0) return;
  const auto endless = std::string(bytes) + std::string(kMaxHead + kMaxBody, bytes.back());
  check_progress(base::parse_http_request(endless), endless.size());
}

void read_answers(std::string_view bytes) {
  store::HttpClient client("host", 80, base::IpFamily::kAny, std::nullopt, [bytes] {
    auto unsent = bytes;
    return std::make_unique<store::ScriptedStream>(
        [unsent]() mutable { return std::string(std::exchange(unsent, {})); },
        1 + bytes.size() % 60 + bytes.size() / 20);
  });
  const auto answer = client.post("/path", "{}", std::chrono::seconds(1));
  if (!answer) return;
  FUZZ_CHECK(answer->status >= 0 && answer->status <= 999);
  FUZZ_CHECK(answer->body.size() <= bytes.size());
}

}  // namespace
}  // namespace cohort::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = cohort::fuzz::text_of(data + 1, size - 1);
  data[0] == 'Q' ? cohort::fuzz::parse_request(bytes) : cohort::fuzz::read_answers(bytes);
  return 0;
}
