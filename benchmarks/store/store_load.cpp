#include "benchmarks/store/store_load.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <stdexcept>

#include "benchmarks/support/value_or_throw.h"
#include "cohort/store/stream/socket.h"
#include "cohort/store/tcp/protocol.h"

namespace cohort::bench {
namespace {

using Clock = std::chrono::steady_clock;
using store::Query;

std::string request(Query query, std::vector<std::string> keys, std::vector<std::string> values = {},
                    int64_t number = 0) {
  return store::encode({query, std::move(keys), std::move(values), number});
}

std::string as_text(const std::string& value) {
  std::string bytes;
  store::put_text(&bytes, value);
  return bytes;
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

StoreLoad::StoreLoad(int port, int num_clients) : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  const std::string ready(1, store::kReady);
  const std::string value(64, 'v');
  for (int i = 0; i < num_clients; ++i) {
    auto socket = value_or_throw(store::connect_to("127.0.0.1", port, std::chrono::seconds(10)));
    const auto key = "/key/" + std::to_string(i);
    Client client{.socket = std::move(socket)};
    // Like clients: a get begins with a wait.
    client.mix = {{request(Query::kSet, {key}, {value}) + request(Query::kWait, {key}), ready},
                  {request(Query::kGet, {key}), as_text(value)},
                  {request(Query::kAdd, {"/sum/" + std::to_string(i)}, {}, 1), std::string(8, '\0'), true}};
    client.compare_set = {
        {request(Query::kCompareSet, {"/turn/" + std::to_string(i)}, {value, value}), as_text(value)}};
    const Step begin{request(Query::kValidate, {}, {}, store::kMagic) + request(Query::kPing, {}, {}, 7),
                     std::string("\7\0\0\0", 4)};
    send_step(&client, begin);
    while (!receive_step(&client, begin)) continue;
    epoll_event event{EPOLLIN, {.u64 = static_cast<uint64_t>(i)}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, client.socket.get(), &event);
    clients_.push_back(std::move(client));
  }
}

void StoreLoad::send_step(Client* client, const Step& step) {
  if (send(client->socket.get(), step.request.data(), step.request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(step.request.size())) {
    throw std::runtime_error("a store takes no requests");
  }
}

bool StoreLoad::receive_step(Client* client, const Step& step) {
  std::array<char, 256> bytes;
  const auto size = recv(client->socket.get(), bytes.data(), step.answer.size() - client->received.size(), 0);
  if (size <= 0) throw std::runtime_error("a store gives no answers");
  client->received.append(bytes.data(), static_cast<size_t>(size));
  if (client->received.size() < step.answer.size()) return false;
  if (!step.is_any && client->received != step.answer) throw std::runtime_error("a store gives a wrong answer");
  client->received.clear();
  return true;
}

double StoreLoad::run(Kind kind, int num_clients, std::chrono::milliseconds duration) {
  const auto steps_of = [&](Client& client) -> const std::vector<Step>& {
    return kind == Kind::kMix ? client.mix : client.compare_set;
  };
  std::array<epoll_event, 256> events;
  const auto begin = Clock::now();
  for (int i = 0; i < num_clients; ++i) {
    auto& client = clients_[static_cast<size_t>(i)];
    client.step = 0;
    send_step(&client, steps_of(client)[0]);
  }
  long num_operations = 0;
  for (int num_busy = num_clients; num_busy > 0;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 10'000);
    if (count == 0) throw std::runtime_error("a store is silent");
    const bool is_over = Clock::now() - begin >= duration;
    for (int i = 0; i < count; ++i) {
      auto& client = clients_[events[static_cast<size_t>(i)].data.u64];
      const auto& steps = steps_of(client);
      if (!receive_step(&client, steps[client.step])) continue;
      ++num_operations;
      client.step = (client.step + 1) % steps.size();
      if (is_over) {
        --num_busy;
      } else {
        send_step(&client, steps[client.step]);
      }
    }
  }
  return seconds_since(begin) / static_cast<double>(num_operations);
}

double StoreLoad::wake_up(int num_clients) {
  const auto end = static_cast<size_t>(num_clients);
  const auto key = "/wake/" + std::to_string(++num_wakes_);
  const Step wait{request(Query::kWait, {key}), std::string(1, store::kReady)};
  const Step ping{request(Query::kPing, {}, {}, 7), std::string("\7\0\0\0", 4)};
  for (size_t i = 1; i < end; ++i) send_step(&clients_[i], wait);
  // A store may read from its clients in any order: the waits have arrived when a second round of requests has, too.
  for (int round = 0; round < 2; ++round) {
    send_step(&clients_[0], ping);
    while (!receive_step(&clients_[0], ping)) continue;
  }
  const auto begin = Clock::now();
  send_step(&clients_[0], {request(Query::kSet, {key}, {"1"}), ""});
  for (size_t i = 1; i < end; ++i) {
    while (!receive_step(&clients_[i], wait)) continue;
  }
  return seconds_since(begin);
}

}  // namespace cohort::bench
