/// A leader that a test plays: it writes into the store of the job "job" what other nodes read there.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cohort/rendezvous/rounds/records.h"
#include "cohort/store/tcp/tcp_client.h"

namespace cohort::rendezvous {

class PlayedLeader {
 public:
  /// The first node, which leads.
  PlayedLeader(int port, const std::string& host, std::chrono::milliseconds timeout)
      : client_(store::TcpClient::connect({.port = port, .timeout = timeout}).value()) {
    client_->set_timeout(timeout);
    self.id = 0;
    self.node = {host, "127.0.0.1", 1, 1, "default"};
    EXPECT_EQ(client_->add("cohort/job/notices", 1).value(), 1);
    EXPECT_TRUE(client_->set("cohort/job/beat/0", "1"));
    say("notice/0", Notice{Notice::Kind::kCome, -1, 0, "", self});
    say("news/0", News(LeadRecord{0, -1}));
  }

  template <class Record>
  void say(const std::string& name, const Record& record) {
    EXPECT_TRUE(client_->set("cohort/job/" + name, to_text(record)));
  }
  /// Waits for the notice that a node writes when it comes.
  Member arrived(int id) {
    auto member = parse_notice(client_->get("cohort/job/notice/" + std::to_string(id)).value()).value().member;
    member.id = id;
    return member;
  }

  Member self;

 private:
  const std::unique_ptr<store::TcpClient> client_;
};

}  // namespace cohort::rendezvous
