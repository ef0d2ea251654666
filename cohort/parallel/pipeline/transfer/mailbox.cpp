#include "cohort/parallel/pipeline/transfer/mailbox.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "cohort/dtensor/api/dtensor.h"
#include "cohort/pipeline/action_text.h"

namespace cohort::pipeline {

namespace {

// Receives of locations are posted ahead, so a tensor that comes itself needs another tag.
constexpr int kMessageTag = 0, kCopiedTag = 1;

}  // namespace

WorkPtr Mailbox::receive_into(const at::Tensor& tensor, int peer, int tag) const {
  return irecv(tensor, RankArgument(group_rank(peer)), {.group = group_, .tag = tag});
}

void Mailbox::start(int peer, const at::Tensor& tensor, int tag) {
  if (tensor.numel() > 0) sent_.push_back({isend(tensor, group_rank(peer), {.group = group_, .tag = tag}), tensor});
}

void Mailbox::give(int peer, const at::Tensor& tensor) {
  if (!ZeroCopySends::suits(tensor.nbytes(), tensor.device())) {
    return start(peer, tensor.detach().contiguous(), kMessageTag);
  }
  zero_copy_bytes_ += ZeroCopySends::part_bytes_of(tensor.nbytes());
  if (!zero_copy_sends_) return start(peer, tensor.detach().contiguous(), kMessageTag);
  const TensorLocation location = zero_copy_sends_->send(tensor, peer);
  start(peer, location.tensor(), kMessageTag);
  if (location.area == TensorLocation::Area::kNone) start(peer, tensor.detach().contiguous(), kCopiedTag);
}

void Mailbox::send(int peer, const TensorList& tensors, bool announces) {
  // Checks before anything is sent, since the receiver takes full messages.
  TORCH_CHECK_VALUE(std::none_of(tensors.begin(), tensors.end(), is_dtensor),
                    "[cohort] pipeline: a stage returned a DTensor for another rank, but tensors between stages must "
                    "be plain\n  hint: end its forward with full_tensor() or to_local(), and begin the next "
                    "stage's with DTensor::from_local()");
  while (!sent_.empty() && sent_.front().work->isCompleted()) sent_.pop_front();
  if (announces) {
    const auto device = tensors.empty() ? c10::Device(c10::kCPU) : tensors.front().device();
    start(peer, write_header(metas_of(tensors)).to(device), kMessageTag);
  }
  for (const at::Tensor& tensor : tensors) give(peer, tensor);
}

void Mailbox::send_failure(int peer, c10::Device device) { start(peer, failure_header().to(device), kMessageTag); }

bool Mailbox::expects(const Action& receive) const {
  return std::any_of(inboxes_.begin(), inboxes_.end(), [&](const auto& inbox) {
    return std::any_of(inbox.second.begin(), inbox.second.end(),
                       [&](const Expected& each) { return each.receive == receive; });
  });
}

void Mailbox::expect(const Action& receive, int peer, c10::Device device,
                     std::function<std::optional<TensorMetas>()> metas, bool is_posted) {
  Inbox& inbox = inboxes_[peer];
  inbox.push_back({receive, peer, device, std::move(metas), {}, {}, {}, false});
  const bool is_next = std::all_of(inbox.begin(), inbox.end() - 1, [](const Expected& each) { return each.is_posted; });
  if (is_posted && is_next) post(inbox.back());
}

void Mailbox::post(Expected& expected) {
  if (auto metas = expected.metas()) {
    expected.message.metas = std::move(*metas);
  } else {
    const at::Tensor header = at::empty({kHeaderLength}, at::TensorOptions(at::kLong).device(expected.device));
    receive_into(header, expected.peer, kMessageTag)->wait();
    auto announcement = read_header(header.cpu());
    expected.message.metas = std::move(announcement.metas);
    expected.message.has_failed = announcement.has_failed;
  }
  for (const TensorMeta& meta : expected.message.metas) {
    const bool is_zero_copy = zero_copy_sends_ && ZeroCopySends::suits(bytes_of(meta), expected.device);
    at::Tensor tensor = is_zero_copy ? TensorLocation().tensor() : buffers_->take(meta, expected.device);
    if (tensor.numel() > 0) expected.works.push_back(receive_into(tensor, expected.peer, kMessageTag));
    expected.message.tensors.push_back(is_zero_copy ? at::Tensor() : tensor);
    expected.locations.push_back(is_zero_copy ? tensor : at::Tensor());
  }
  expected.is_posted = true;
}

// Blocks until the full message is here.
void Mailbox::complete(Expected& expected) {
  for (const WorkPtr& work : std::exchange(expected.works, {})) work->wait();
  for (size_t i = 0; i < expected.locations.size(); ++i) {
    const at::Tensor location_tensor = std::exchange(expected.locations[i], at::Tensor());
    if (!location_tensor.defined()) continue;
    const TensorLocation location = TensorLocation::read(location_tensor);
    const TensorMeta& meta = expected.message.metas[i];
    at::Tensor& tensor = expected.message.tensors[i];
    if (location.area != TensorLocation::Area::kNone) {
      tensor = zero_copy_sends_->receive(location, meta, expected.peer);
    } else {
      tensor = buffers_->take(meta, expected.device);
      receive_into(tensor, expected.peer, kCopiedTag)->wait();
    }
  }
}

Mailbox::Message Mailbox::take(const Action& receive) {
  // A rank that sends in forward only would keep everything until the next step otherwise.
  if (zero_copy_sends_) zero_copy_sends_->take_back();
  for (auto& [peer, inbox] : inboxes_) {
    const auto found =
        std::find_if(inbox.begin(), inbox.end(), [&](const Expected& each) { return each.receive == receive; });
    if (found == inbox.end()) continue;
    for (auto each = inbox.begin(); each != found + 1; ++each) {
      if (!each->is_posted) post(*each);
    }
    // Completes earlier messages too: tensors that come themselves are received in the order in which they were sent.
    for (auto each = inbox.begin(); each != found + 1; ++each) complete(*each);
    Message message = std::move(found->message);
    inbox.erase(found);
    return message;
  }
  TORCH_CHECK(false, "[cohort] pipeline: ", pipeline::text_of(receive), " is needed, but was not posted");
}

void Mailbox::finish() {
  for (const auto& [peer, inbox] : inboxes_) {
    TORCH_CHECK(inbox.empty(), "[cohort] pipeline: ", pipeline::text_of(inbox.front().receive),
                " was received, but not used");
  }
  for (const Sent& sent : sent_) sent.work->wait();
  sent_.clear();
}

}  // namespace cohort::pipeline
