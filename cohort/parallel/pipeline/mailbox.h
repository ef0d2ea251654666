/// Mailbox: messages between stages on different ranks, each a list of tensors, through the group's backend.
///
/// Messages from one rank come in the order in which they were sent; a receive is posted when its tensors' shapes are known.
/// Where they come with the message, that is when the receive is needed, after those from the same rank that come before it.
/// Where ranks share memory, large tensors are lent (loans.h): a slip of paper is sent in their place.
#pragma once

#include <c10/core/Device.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/parallel/pipeline/loans.h"
#include "cohort/parallel/pipeline/receive_buffers.h"
#include "cohort/parallel/pipeline/tensor_header.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

class Mailbox {
 public:
  /// `buffers`: where received tensors lie. `loans`: null, on all ranks, where nothing is lent. Both must outlive this.
  Mailbox(Group group, ReceiveBuffers& buffers, Loans* loans)
      : group_(std::move(group)), buffers_(&buffers), loans_(loans) {}

  /// Returns at once. `announces`: the tensors' shapes go before them. A tensor that nobody else has may become the receiver's:
  /// the caller does not write it any more, and lets go of it without looking.
  void send(int peer, const TensorList& tensors, bool announces);
  /// This rank has failed: instead of an announced message.
  void send_failure(int peer, c10::Device device);

  /// A message that is to come from `peer` to tensors on `device`. `metas`: asked when it is posted; nothing: they come with the
  /// message. `is_posted`: now, rather than when it is needed.
  void expect(const Action& receive, int peer, c10::Device device, std::function<std::optional<TensorMetas>()> metas,
              bool is_posted);

  struct Message {
    TensorList tensors;
    TensorMetas metas;
    bool has_failed = false;  ///< the sender's step: nothing else has come
  };
  bool expects(const Action& receive) const;
  /// Blocks until it is there. Requires: expect() of it.
  Message take(const Action& receive);

  /// What all that was sent would take of a part of Loans.
  size_t lendable_bytes() const { return lendable_bytes_; }

  /// Blocks until all that was sent has been taken. Throws c10::Error if something was expected and not taken.
  void finish();

 private:
  struct Expected {
    Action receive;
    int peer = 0;
    c10::Device device = c10::kCPU;
    std::function<std::optional<TensorMetas>()> metas;
    Message message;
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> slips;  ///< of tensors that are lent, else undefined
    bool is_posted = false;
  };
  using Inbox = std::deque<Expected>;

  void post(Expected& expected);
  void complete(Expected& expected);
  WorkPtr receive_into(const at::Tensor& tensor, int peer, int tag) const;
  void start(int peer, const at::Tensor& tensor, int tag);
  void give(int peer, const at::Tensor& tensor);

  Group group_;
  ReceiveBuffers* buffers_;
  Loans* loans_;
  size_t lendable_bytes_ = 0;
  std::map<int, Inbox> inboxes_;
  struct Sent {
    WorkPtr work;
    at::Tensor tensor;
  };
  std::deque<Sent> sent_;
};

}  // namespace cohort::pipeline
