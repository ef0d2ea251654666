// store_calls [--no-barrier] PORT: the calls of store_calls.h, by our client of a store on 127.0.0.1.
#include "tests/e2e/programs/store/store_calls.h"

#include "cohort/store/tcp/tcp_client.h"

int main(int argc, char** argv) {
  using namespace cohort::store;
  const auto client = TcpClient::connect({.port = std::atoi(argv[argc - 1]), .timeout = std::chrono::seconds(20)});
  if (!client) {
    std::cout << client.error().describe() << "\n" << std::flush;
    return 1;
  }
  call_values(**client);
  call_queues(**client);
  call_waits(**client, argc == 2);
}
