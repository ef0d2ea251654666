/// LossyRelay: stands between an HTTP client and its server and loses some answers; or answers by itself.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "cohort/store/stream/socket.h"

namespace cohort::store {

/// Takes one connection after the other, each for one request.
class LossyRelay {
 public:
  /// Passes requests on to 127.0.0.1:`port`; every `period`th answer is not passed back.
  LossyRelay(int port, int period);
  /// Gives everybody the same answer, and ends the connection.
  explicit LossyRelay(std::string answer);
  ~LossyRelay();

  int port() const { return listener_.port; }
  int num_lost() const { return num_lost_; }

 private:
  void run();
  void serve(int client);

  Listener listener_;
  const int target_ = 0;
  const int period_ = 0;
  const std::string answer_;
  int num_served_ = 0;
  std::atomic<int> num_lost_ = 0;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

}  // namespace cohort::store
