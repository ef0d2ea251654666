#include "cohort/parallel/pipeline/mailbox.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "cohort/pipeline/action_text.h"

namespace cohort::pipeline {

void Mailbox::start(int peer, const at::Tensor& tensor) {
  if (tensor.numel() > 0) sent_.push_back({isend(tensor, group_rank(peer), {.group = group_}), tensor});
}

void Mailbox::send(int peer, const TensorList& tensors, bool announces) {
  while (!sent_.empty() && sent_.front().work->isCompleted()) sent_.pop_front();
  if (announces) {
    const auto device = tensors.empty() ? c10::Device(c10::kCPU) : tensors.front().device();
    start(peer, write_header(metas_of(tensors)).to(device));
  }
  for (const at::Tensor& tensor : tensors) start(peer, tensor.detach().contiguous());
}

void Mailbox::send_failure(int peer, c10::Device device) { start(peer, failure_header().to(device)); }

bool Mailbox::expects(const Action& receive) const {
  return std::any_of(inboxes_.begin(), inboxes_.end(), [&](const auto& inbox) {
    return std::any_of(inbox.second.begin(), inbox.second.end(),
                       [&](const Expected& each) { return each.receive == receive; });
  });
}

void Mailbox::expect(const Action& receive, int peer, c10::Device device,
                     std::function<std::optional<TensorMetas>()> metas, bool is_posted) {
  Inbox& inbox = inboxes_[peer];
  inbox.push_back({receive, peer, device, std::move(metas), {}, {}, false});
  const bool is_next = std::all_of(inbox.begin(), inbox.end() - 1, [](const Expected& each) { return each.is_posted; });
  if (is_posted && is_next) post(inbox.back());
}

void Mailbox::post(Expected& expected) {
  const auto receive_into = [&](const at::Tensor& tensor) {
    return irecv(tensor, RankArgument(group_rank(expected.peer)), {.group = group_});
  };
  if (auto metas = expected.metas()) {
    expected.message.metas = std::move(*metas);
  } else {
    const at::Tensor header = at::empty({kHeaderLength}, at::TensorOptions(at::kLong).device(expected.device));
    receive_into(header)->wait();
    auto announcement = read_header(header.cpu());
    expected.message.metas = std::move(announcement.metas);
    expected.message.has_failed = announcement.has_failed;
  }
  for (const TensorMeta& meta : expected.message.metas) {
    at::Tensor tensor = buffers_->take(meta, expected.device);
    if (tensor.numel() > 0) expected.works.push_back(receive_into(tensor));
    expected.message.tensors.push_back(std::move(tensor));
  }
  expected.is_posted = true;
}

Mailbox::Message Mailbox::take(const Action& receive) {
  for (auto& [peer, inbox] : inboxes_) {
    const auto found =
        std::find_if(inbox.begin(), inbox.end(), [&](const Expected& each) { return each.receive == receive; });
    if (found == inbox.end()) continue;
    for (auto each = inbox.begin(); each != found + 1; ++each) {
      if (!each->is_posted) post(*each);
    }
    for (const WorkPtr& work : found->works) work->wait();
    Message message = std::move(found->message);
    inbox.erase(found);
    return message;
  }
  TORCH_CHECK(false, "[cohort] pipeline: ", pipeline::text_of(receive), " is needed, but it has not been posted");
}

void Mailbox::finish() {
  for (const auto& [peer, inbox] : inboxes_) {
    TORCH_CHECK(inbox.empty(), "[cohort] pipeline: ", pipeline::text_of(inbox.front().receive),
                " was received, but nothing used it");
  }
  for (const Sent& sent : sent_) sent.work->wait();
  sent_.clear();
}

}  // namespace cohort::pipeline
