// What a store answers to TcpClient. An input is a line of letters, one for each operation, and behind it all that the server
// says; then it hangs up.
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "cohort/store/tcp/tcp_client.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::store {
namespace {

using std::chrono::milliseconds;

constexpr size_t kMostOperations = 50;
/// What a socket takes before anybody reads from it.
constexpr size_t kMostBytes = 100'000;

size_t size_of(const std::vector<std::string>& texts) {
  size_t size = 0;
  for (const auto& text : texts) size += text.size();
  return size;
}

size_t size_of(const Store::Result<std::string>& text) { return text ? text->size() : 0; }
size_t size_of(const Store::Result<Store::Values>& texts) { return texts ? size_of(*texts) : 0; }

// How many bytes of what it returns are the server's.
size_t run(TcpClient& client, char operation) {
  switch (operation) {
    case 'g':
      return size_of(client.get("key"));
    case 'c':
      return size_of(client.compare_set("key", "expected", "desired"));
    case 'm':
      return size_of(client.multi_get({"a", "b", "c"}));
    case 'l':
      return size_of(client.list_keys());
    case 'p': {
      const auto entry = client.queue_pop("queue", /*block=*/false);
      return entry && *entry ? (*entry)->size() : 0;
    }
    case 'a':
      (void)client.add("key", 1);
      return 0;
    case 'k':
      (void)client.check({"a", "b"});
      return 0;
    case 'n':
      (void)client.num_keys();
      return 0;
    case 'd':
      (void)client.delete_key("key");
      return 0;
    case 'w':
      (void)client.wait({"a"}, milliseconds(0));
      return 0;
    case 'b':
      (void)client.barrier("barrier", 2, milliseconds(0));
      return 0;
    default:
      (void)client.queue_len("queue");
      return 0;
  }
}

}  // namespace
}  // namespace cohort::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort;
  auto answers = fuzz::text_of(data, size);
  const auto operations = fuzz::take_until(&answers, '\n').substr(0, store::kMostOperations);
  answers = answers.substr(0, store::kMostBytes);
  int ends[2];
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const base::Fd server(ends[0]);
  const auto client = store::TcpClient::on(
      base::Fd(ends[1]), {.timeout = std::chrono::milliseconds(50), .answer_timeout = std::chrono::milliseconds(50)});
  FUZZ_CHECK(send(server.get(), answers.data(), answers.size(), MSG_DONTWAIT) == static_cast<ssize_t>(answers.size()));
  shutdown(server.get(), SHUT_WR);
  size_t num_bytes = 0;
  for (const char operation : operations) num_bytes += store::run(*client, operation);
  FUZZ_CHECK(num_bytes <= answers.size());
  return 0;
}
