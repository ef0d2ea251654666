// What clients send to the store's server: the requests taken apart, whole and in pieces, and carried out on a table.
#include <set>
#include <string>
#include <vector>

#include "cohort/store/keys/table.h"
#include "cohort/store/tcp/protocol.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::store {
namespace {

constexpr uint64_t kNumClients = 3;

struct Outcome {
  std::vector<Request> requests;
  /// Of all requests, encoded again.
  std::string bytes;
  std::string failure;
};

// False: no more can come.
bool take_requests(RequestReader& reader, Outcome* outcome) {
  while (true) {
    auto request = reader.next();
    if (!request) {
      outcome->failure = request.error().message();
      FUZZ_CHECK(!reader.next());
      return false;
    }
    if (!*request) return true;
    outcome->bytes += encode(**request);
    outcome->requests.push_back(std::move(**request));
  }
}

Outcome read_in_pieces(std::string_view bytes, size_t piece) {
  Outcome outcome;
  RequestReader reader;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    reader.feed(bytes.substr(begin, piece));
    if (!take_requests(reader, &outcome)) break;
    // What has come may be held twice, as bytes and as fields of the request; what is only announced may not be held.
    FUZZ_CHECK(reader.num_bytes_held() <= 2 * (begin + piece));
  }
  return outcome;
}

void use_values(Table& table, const Request& request) {
  switch (request.query) {
    case Query::kSet:
    case Query::kMultiSet:
      for (size_t i = 0; i < request.keys.size(); ++i) table.set(request.keys[i], request.values.at(i));
      break;
    case Query::kCompareSet:
      (void)table.compare_set(request.keys.at(0), request.values.at(0), request.values.at(1));
      break;
    case Query::kAdd:
      (void)table.add(request.keys.at(0), request.number);
      break;
    case Query::kAppend:
      table.append(request.keys.at(0), request.values.at(0));
      break;
    case Query::kDeleteKey:
      (void)table.delete_key(request.keys.at(0));
      break;
    case Query::kQueuePush:
      table.queue_push(request.keys.at(0), request.values.at(0));
      break;
    case Query::kQueuePop:
      (void)table.queue_pop(request.keys.at(0));
      break;
    default:
      break;
  }
}

void carry_out(Table& table, uint64_t client, const Request& request) {
  if (request.query == Query::kWait) {
    (void)table.wait(client, request.keys);
  } else if (request.query == Query::kBarrier) {
    (void)table.barrier(client, request.keys.at(0), request.number);
  } else if (request.query == Query::kCancelWait) {
    table.stop_waiting(client);
  } else {
    use_values(table, request);
  }
}

// Whoever forgets to count something has a server that grows, or that believes it is full.
void expect_all_is_counted(const std::vector<Request>& requests) {
  std::set<std::string> keys;
  Table table([](Table::Waiter) {});
  for (size_t i = 0; i < requests.size(); ++i) {
    carry_out(table, i % kNumClients, requests[i]);
    keys.insert(requests[i].keys.begin(), requests[i].keys.end());
  }
  for (uint64_t client = 0; client < kNumClients; ++client) table.stop_waiting(client);
  FUZZ_CHECK(table.num_waiters() == 0);
  for (const auto& key : keys) {
    (void)table.delete_key(key);
    while (table.queue_pop(key)) continue;
  }
  FUZZ_CHECK(table.num_keys() == 0);
  FUZZ_CHECK(table.num_bytes() == 0);
}

}  // namespace
}  // namespace cohort::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  const auto bytes = fuzz::text_of(data, size);
  const auto whole = store::read_in_pieces(bytes, size + 1);
  FUZZ_CHECK(bytes.starts_with(whole.bytes));
  FUZZ_CHECK(!whole.failure.empty() || bytes.size() - whole.bytes.size() <= store::kMaxRequestBytes);
  const auto pieces = store::read_in_pieces(bytes, 1 + size % 7 + size / 200);
  FUZZ_CHECK(pieces.bytes == whole.bytes);
  FUZZ_CHECK(pieces.failure == whole.failure);
  store::expect_all_is_counted(whole.requests);
  return 0;
}
