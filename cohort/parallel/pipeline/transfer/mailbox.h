/// Mailbox: exchanges messages between stages on different ranks, each a list of tensors, through the group's backend.
///
/// Messages from one rank come in the order in which they were sent. A receive is posted when its tensors' shapes are known. If
/// the shapes come with the message, it is posted when its tensors are needed, after earlier messages from the same rank. If
/// ranks share memory, large tensors are sent without a copy (zero_copy_sends.h): a location is sent in their place.
#pragma once

#include <c10/core/Device.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/comm/collectives/point_to_point.h"
#include "cohort/parallel/pipeline/transfer/receive_buffers.h"
#include "cohort/parallel/pipeline/transfer/tensor_header.h"
#include "cohort/parallel/pipeline/transfer/zero_copy_sends.h"
#include "cohort/pipeline/action.h"

namespace cohort::pipeline {

class Mailbox {
 public:
  /// `buffers`: the memory of received tensors. `zero_copy_sends`: null, on all ranks, if every tensor is copied. Both must
  /// outlive this.
  Mailbox(Group group, ReceiveBuffers& buffers, ZeroCopySends* zero_copy_sends)
      : group_(std::move(group)), buffers_(&buffers), zero_copy_sends_(zero_copy_sends) {}

  /// Returns at once. `announces`: sends the tensors' shapes before them. A tensor that nobody else holds may become the
  /// receiver's: the caller must not write to it any more, and releases it without reading it.
  void send(int peer, const TensorList& tensors, bool announces);
  /// Says that this rank has failed, instead of an announced message.
  void send_failure(int peer, c10::Device device);

  /// Expects a message from `peer` to tensors on `device`. `metas`: called when the receive is posted; returns nothing if the
  /// shapes come with the message. `is_posted`: post the receive now, not when it is needed.
  void expect(const Action& receive, int peer, c10::Device device, std::function<std::optional<TensorMetas>()> metas,
              bool is_posted);

  struct Message {
    TensorList tensors;
    TensorMetas metas;
    bool has_failed = false;  ///< the sender's step failed: nothing else has come
  };
  bool expects(const Action& receive) const;
  /// Blocks until the message is there. Requires: expect() of it.
  Message take(const Action& receive);

  /// The bytes in this rank's part of ZeroCopySends that everything sent so far would take.
  size_t zero_copy_bytes() const { return zero_copy_bytes_; }

  /// Blocks until everything sent has been received. Throws c10::Error if an expected message was not taken.
  void finish();

 private:
  struct Expected {
    Action receive;
    int peer = 0;
    c10::Device device = c10::kCPU;
    std::function<std::optional<TensorMetas>()> metas;
    Message message;
    std::vector<WorkPtr> works;
    std::vector<at::Tensor> locations;  ///< of zero-copy tensors, else undefined
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
  ZeroCopySends* zero_copy_sends_;
  size_t zero_copy_bytes_ = 0;
  std::map<int, Inbox> inboxes_;
  struct Sent {
    WorkPtr work;
    at::Tensor tensor;
  };
  std::deque<Sent> sent_;
};

}  // namespace cohort::pipeline
