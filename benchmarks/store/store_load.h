/// StoreLoad: many clients of one TCPStore server, in one thread, each with one pending request at any time. Uses the protocol of
/// our and LibTorch's clients, so it works with both servers.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cohort/base/file/file.h"

namespace cohort::bench {

class StoreLoad {
 public:
  /// Connects to 127.0.0.1:port, `num_clients` times. All methods throw std::runtime_error for a wrong answer.
  StoreLoad(int port, int num_clients);

  /// A request and its expected answer. A request with an answer of length 0 is sent together with the next one.
  struct Step {
    std::string request;
    std::string answer;
    /// Whether only the length of the answer is known.
    bool is_any = false;
  };
  enum class Kind { kMix, kCompareSet };
  /// Keeps the first `num_clients` busy. Returns: seconds per operation.
  double run(Kind kind, int num_clients, std::chrono::milliseconds duration);
  /// All but the first of `num_clients` wait for a key, which the first one sets. Returns: seconds until all have been notified.
  double wake_up(int num_clients);

 private:
  struct Client {
    base::Fd socket;
    std::vector<Step> mix;
    std::vector<Step> compare_set;
    size_t step = 0;
    std::string received;
  };
  void send_step(Client* client, const Step& step);
  /// Returns: whether the answer is complete.
  bool receive_step(Client* client, const Step& step);

  base::Fd epoll_;
  std::vector<Client> clients_;
  int num_wakes_ = 0;
};

}  // namespace cohort::bench
